// What the runtime of tests is made of: GPUs and their memory (runtime.cpp), streams, events and
// graphs (streams.cpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <sys/mman.h>

#include "tests/cuda_on_cpu/runtime.h"
#include "trainer/clock.h"
#include "trainer/device/cuda/stream.h"

namespace cuda_on_cpu {

using Queue = CUstream_st;

struct EventState {
  bool has_passed = false;
  double passed_at = 0; ///< now() then.
  Queue* queue = nullptr;
  int gpu = 0;
  int asked = 0; ///< How often somebody has asked whether it has passed.
};
using EventHandle = std::shared_ptr<EventState>;

struct Work {
  std::function<bool()> run; ///< Whether it is done; else it is to be asked again.
  EventHandle passes;        ///< One that is recorded here,
  EventHandle held;          ///< or that is waited for.
  double seconds = 0;        ///< That it takes.
  bool waits = false;        ///< It was asked before it was done, and so ends when it is done.
  double put_at = trainer::now();
};

} // namespace cuda_on_cpu

struct CUstream_st {
  int gpu = 0;
  bool is_first = false; ///< Of its GPU.
  double free_at = 0;    ///< When what it has carried out so far ended.
  std::deque<cuda_on_cpu::Work> work;
  bool is_noting = false; ///< Kernels for a graph.
  std::vector<std::function<bool()>> noted;
};
struct CUevent_st {
  cuda_on_cpu::EventHandle state; ///< Null: it was recorded nowhere yet.
  bool is_timed = false;
};
struct CUgraph_st {
  int gpu;
  std::vector<std::function<bool()>> kernels;
};
struct CUgraphExec_st : CUgraph_st {};

namespace cuda_on_cpu {

constexpr std::size_t k_memory = std::size_t{256} << 20; ///< Of a GPU.

/// What is mapped at reserved addresses (virtual_memory.cpp).
struct Mapped {
  std::size_t bytes = 0;
  unsigned long long handle = 0;
  bool has_access = false; ///< Its GPU.
};
struct Physical {
  int gpu = 0;
  std::size_t bytes = 0;
  bool is_mapped = false;
};

struct Gpu {
  std::byte* memory = nullptr;
  std::size_t used = 0;                     ///< Up to here it has been given out.
  std::map<std::size_t, std::size_t> taken; ///< Offset and size.
  std::uint64_t kernels = 0;                ///< Put on its streams.
  std::map<std::byte*, Mapped> mapped;

  bool holds(const void* at) const {
    auto* byte = static_cast<std::byte*>(const_cast<void*>(at));
    if (memory != nullptr && byte >= memory && byte < memory + k_memory) {
      return true;
    }
    auto it = mapped.upper_bound(byte);
    return it != mapped.begin() && byte < (--it)->first + it->second.bytes;
  }
};

/// While it lives, this GPU's memory can be touched.
class Opened {
 public:
  explicit Opened(const Gpu& gpu) : gpu_(gpu) { protect(PROT_READ | PROT_WRITE); }
  ~Opened() { protect(PROT_NONE); }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;

 private:
  void protect(int how) const {
    if (gpu_.used > 0) {
      mprotect(gpu_.memory, gpu_.used, how);
    }
    for (auto it = gpu_.mapped.begin(); it != gpu_.mapped.end();) {
      std::byte* const first = it->first;
      std::byte* last = first;
      for (; it != gpu_.mapped.end() && it->first == last && it->second.has_access; ++it) {
        last += it->second.bytes;
      }
      if (last == first) { // Nobody may touch it yet.
        ++it;
      } else {
        mprotect(first, static_cast<std::size_t>(last - first), how);
      }
    }
  }
  const Gpu& gpu_;
};

struct World {
  std::mutex mutex;
  std::map<int, Gpu> gpus;
  std::map<int, Opened> open; ///< While the mutex is held, those that something is carried out on.
  std::set<std::pair<int, int>> peers; ///< The first reaches the memory of the second.
  std::set<Queue*> queues;
  std::set<cudaEvent_t> events;
  std::set<cudaGraph_t> noted;
  std::set<cudaGraphExec_t> graphs;
  std::map<const std::byte*, std::size_t> pinned;
  std::map<const std::byte*, std::size_t> reserved; ///< Addresses.
  std::map<unsigned long long, Physical> physical;  ///< By handle.
  std::map<std::string, int> calls; ///< Of what a step may consist of; "kernel": those put there.
  int kernels = 0;                  ///< Carried out.
  cudaError_t error = cudaSuccess;  ///< Of all that is done from now on.
  std::map<const std::byte*, std::size_t> registered; ///< Pinned where it was already.
};

World& world();

/// Makes its memory, the first time.
Gpu& gpu_of(int index);

inline thread_local int current = 0; ///< The GPU that this thread's calls are of.

/// A variable of the environment.
int number(const char* variable, int otherwise);

using Lock = std::unique_lock<std::mutex>;

/// Carries out all that is on a GPU's streams.
void run_all(Lock& lock, int gpu);

} // namespace cuda_on_cpu
