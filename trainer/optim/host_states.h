// What a GPU's optimizer updates, in the host's pinned memory, for models whose states do not fit
// into the GPU's (Ren et al. 2021, ZeRO-Offload): rows of values, one for each moment and perhaps
// one for the parameters.
//
// They pass through the GPU's memory in pieces. Each way has a stream of copies: while one piece is
// updated, the next ones come, and those before go back, beside whatever else the GPU computes. The
// host waits for nothing.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "trainer/device/stored_values.h"

namespace trainer {

class HostStates {
 public:
  /// `rows`: pinned memory, at least one, all of one length. All arguments outlive this.
  HostStates(Device& device, std::vector<std::span<float>> rows);

  /// From now on the values of the first row go back in the type of `halves`, too, to this pinned
  /// memory, as long as a row.
  void round_first(const Buffer& halves);

  /// Values of each row that are updated at a time, at most; of rows of so many.
  static std::size_t largest(std::size_t count);
  std::size_t largest() const { return largest_; }

  /// A step's updates begin: of values that the host has, or that go back to it.
  void begin();
  /// Where `count` values of each row from `at` on are on the device, once `stream` has come here:
  /// until put_back().
  RowPointers take(Stream& stream, std::size_t at, std::size_t count);
  /// Copies them back once `stream` has come here.
  void put_back(Stream& stream);
  /// An event that passes when all that was put back is in the host's memory.
  std::unique_ptr<Event> record() { return out_->record(); }

  /// Bytes of the device's memory for pieces of rows of so many values.
  static std::size_t memory_bytes(std::size_t rows, std::size_t count, bool rounds_first = false);

 private:
  /// A piece that comes, one that is updated, and one that goes back.
  static constexpr std::size_t k_slots = 3;

  float* memory(std::size_t row) const {
    return memory_.data() + (slot_ * rows_.size() + row) * largest_;
  }

  /// Of a piece of the first row in 16 bits.
  TypedPointer half_memory() const { return TypedPointer(half_memory_) + slot_ * largest_; }

  Device& device_;
  std::vector<std::span<float>> rows_;
  std::size_t largest_;
  Buffer memory_;                                       ///< (k_slots, rows, largest)
  TypedPointer halves_;                                 ///< Null: round_first() was not called.
  Buffer half_memory_ = Buffer(0);                      ///< (k_slots, largest)
  std::array<std::shared_ptr<Event>, k_slots> is_free_; ///< What was in a slot has gone back.
  std::size_t slot_ = 0;                                ///< Of the piece that is taken.
  std::size_t at_ = 0;
  std::size_t count_ = 0;
  std::unique_ptr<Stream> in_;
  std::unique_ptr<Stream> out_;
};

} // namespace trainer
