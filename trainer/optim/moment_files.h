// The moments of an optimizer in a file, for models whose states do not fit into memory
// (Rajbhandari et al. 2021, ZeRO-Infinity).
//
// They pass through memory in pieces of k_piece values, in ascending order and then again from the
// first. While the optimizer updates one piece, a thread reads the next two and writes those
// before; so the first pieces of a step are read while its gradients are computed.
#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>

#include "trainer/device/device.h"
#include "trainer/device/unlinked_file.h"

namespace trainer {

class MomentFiles {
 public:
  static constexpr std::size_t k_piece = std::size_t{1} << 18; ///< Values of each moment.
  static constexpr std::size_t k_most_moments = 2;

  /// `count` zeros of each moment, in an unlinked file in `folder`. `device` updates them, and
  /// outlives this. Throws UsageError naming the folder if it has no room.
  MomentFiles(Device& device, std::size_t moments, std::size_t count, const std::string& folder);
  ~MomentFiles();
  MomentFiles(const MomentFiles&) = delete;
  MomentFiles& operator=(const MomentFiles&) = delete;

  /// Memory of each moment's values from `at` on, to the end of the piece, that the device can
  /// update until the next call. Throws Error naming the folder if a piece could not be read or
  /// written.
  std::array<float*, k_most_moments> use(std::size_t at);

  /// All values of a moment, mapped in host memory: for others than the optimizer, between flush()
  /// and forget().
  std::span<float> mapped(std::size_t moment) const;
  /// Bytes of memory for the pieces of so many values of each moment.
  static std::size_t memory_bytes(std::size_t moments, std::size_t count);
  /// Writes back what has been updated. Throws as use().
  void flush();
  /// Call after others have used mapped(): its pages are evicted, and pieces are read anew.
  void forget();

 private:
  static constexpr std::size_t k_slots = 4;
  static constexpr std::size_t k_ahead = 2;
  static constexpr std::size_t k_none = SIZE_MAX;

  /// Jobs are carried out in order, so that a slot's memory needs no further lock: it is written
  /// back before another piece is read into it.
  struct Slot {
    std::size_t piece = k_none;
    std::size_t ticket = 0; ///< Of its last job.
  };
  struct Job {
    std::size_t piece;
    std::size_t slot;
    std::unique_ptr<Event> updated; ///< Null: read the piece; else write it after this event.
  };

  std::size_t pieces() const { return (count_ + k_piece - 1) / k_piece; }
  float* memory(std::size_t slot, std::size_t moment) const;
  std::size_t slot_of(std::size_t piece) const; ///< k_none: it is in none.
  void put_back();
  void add(std::size_t slot, std::unique_ptr<Event> updated);
  void wait(std::size_t ticket);
  void work();
  bool carry_out(const Job& job) const;

  Device& device_;
  std::size_t moments_;
  std::size_t count_;
  std::string folder_;
  UnlinkedFile file_;
  float* mapped_;
  Buffer memory_; ///< (k_slots, moments, k_piece), pinned.
  std::array<Slot, k_slots> slots_;
  std::size_t current_ = k_none; ///< Slot of the piece being updated.
  std::size_t added_ = 0;        ///< Jobs.

  std::mutex mutex_; ///< Guards what follows.
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  std::size_t done_ = 0;
  std::string error_; ///< What went wrong first; empty: nothing.
  bool ends_ = false;
  std::thread thread_;
};

} // namespace trainer
