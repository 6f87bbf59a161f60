// What steps have come to, on its way from the device to the host.
//
// A step's kernels put it in the device's memory, and it is copied from there into pinned memory of
// the host, which reads it when it has come: a step or two later, or at once where the device is
// the host. So nobody waits for a number that is only looked at.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "trainer/device/device.h"

namespace trainer {

struct Outcome {
  std::int64_t step = 0;
  Score score;
  std::optional<StepState> state;
};

class Outcomes {
 public:
  static constexpr std::size_t k_most_under_way = 4;

  explicit Outcomes(Device& device);

  /// In the device's memory, zero, for the kernels that are put on its stream from now on. Fewer
  /// than k_most_under_way may be under way.
  Score* begin();
  /// What the stream's kernels have put there is on its way, and so is `*state`, of the device's
  /// memory, where it is given; of step `step`.
  void send(std::int64_t step, const StepState* state = nullptr);

  std::size_t under_way() const { return sent_ - taken_; }
  /// The oldest one under way. There is one.
  bool has_come() const;
  void wait() const;

  /// The oldest one, which has come.
  Outcome take();

 private:
  struct Slot {
    std::int64_t step = 0;
    bool has_state = false;
    std::unique_ptr<Event> came;
  };
  const Slot& oldest() const { return slots_[taken_ % k_most_under_way]; }

  Stream& stream_;
  Buffer on_device_;
  Buffer on_host_;
  std::array<Slot, k_most_under_way> slots_;
  std::size_t sent_ = 0;
  std::size_t taken_ = 0;
};

} // namespace trainer
