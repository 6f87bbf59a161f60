// A GPU's memory that takes only what is committed, by CUDA's virtual memory management: its
// addresses are reserved once, and a page of them (2 MiB; the driver says) is mapped to physical
// memory when a part of it is committed. See Device::allocate_paged().
//
// A page with nothing committed in it is idle. It stays mapped until another page needs its
// physical memory, so that what is committed again at once costs nothing:
//
//   commit    live, or idle → live   nothing
//             not mapped             physical memory is mapped there, by preference: one that is
//                                    free; that of the page that has been idle for longest, once
//                                    the work on it is done; one that the driver creates
//   discard   live → idle            an event of the stream says when the work on it is done
//
// So the GPU's memory is the most that is committed at a time, in the order of the host's calls.
// Cost: an idle page's work is waited for by the host, where nothing else is free. So the host is
// never further ahead of the GPU than the last pages discarded, and the GPU may be without work for
// as long as the host takes to put a unit's kernels on the stream. To unmap and map a page takes
// the driver some ten microseconds, and the GPU clears it, since what is between tensors must be
// zero.
//
// All GPUs that this process has opened may access the pages, if the machine lets them: NCCL and
// copies read a peer's memory in place. NCCL doesn't register it, as its pages come and go. A CUDA
// graph may refer to addresses, since these stay, but commits nothing. Where a driver has no
// virtual memory management there is no PagedMemory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "trainer/device/cuda/memory/gpu_memory.h"
#include "trainer/device/device.h"
#include "trainer/device/ranges.h"

namespace trainer {

class PagedMemory {
 public:
  /// `stream`: Device::stream(). `memory`: counts what is mapped; both outlive it. Null if the
  /// driver has no virtual memory management.
  static std::unique_ptr<PagedMemory> make(GpuMemory& memory, Stream& stream);
  /// All has been freed.
  ~PagedMemory();
  PagedMemory(const PagedMemory&) = delete;
  PagedMemory& operator=(const PagedMemory&) = delete;

  std::size_t page_bytes() const { return page_; }

  /// Addresses for `bytes`, which take no memory.
  void* reserve(std::size_t bytes);
  /// Waits for all of the GPU's work.
  void free(void* memory);

  /// Of what reserve() gave; any other memory is left alone. What is new is zero.
  void commit(std::span<const float> part);
  void discard(std::span<const float> part);

  /// Gives all physical memory of idle pages back to the driver, and waits for the work on them.
  void trim();

 private:
  using Handle = unsigned long long; ///< Of physical memory, a page of it: the driver's.
  struct Region;
  struct Place {
    Region* region;
    std::size_t page;
  };
  struct Page {
    enum class State : std::uint8_t { unmapped, idle, live };
    State state = State::unmapped;
    Handle handle = 0;
    std::shared_ptr<Event> done;        ///< Of an idle page: the work on it is.
    std::list<Place>::iterator in_idle; ///< Likewise.
  };
  struct Region {
    std::byte* first;
    std::size_t bytes;
    std::vector<Page> pages;
    Ranges committed; ///< In bytes.
  };
  struct Driver;

  PagedMemory(GpuMemory& memory, Stream& stream, const Driver& driver, std::size_t page);

  Region* find(const void* at);
  Handle take();
  void map(Region& region, std::size_t first, std::size_t last);
  Handle unmap(const Place& place);
  void release(Handle handle);

  int gpu_;
  GpuMemory& memory_;
  Stream& stream_;
  const Driver& driver_;
  std::size_t page_;
  std::mutex mutex_;                           ///< Guards what follows.
  std::map<const std::byte*, Region> regions_; ///< By their first addresses.
  std::list<Place> idle_;                      ///< Pages, that for longest first.
  std::vector<Handle> free_;                   ///< Mapped nowhere.
};

} // namespace trainer
