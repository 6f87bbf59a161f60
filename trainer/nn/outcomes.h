// Results of steps (score, optimizer state) on their way from the device to the host.
//
// The kernels of a step write them to pinned host memory, and the host reads them when they have
// arrived: a step or two later, or at once if the device is the host. So no step waits for numbers
// that are only reported, and nothing is copied.
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

/// Where kernels write the results of a step.
struct Seen {
  Score score;
  StepState state;
};

class Outcomes {
 public:
  static constexpr std::size_t k_most_under_way = 4;

  explicit Outcomes(Device& device);

  /// A cleared slot for the kernels queued on the device's stream from now on. Call only if fewer
  /// than k_most_under_way are under way.
  Seen* begin();
  /// Marks the slot as under way, for step `step`, until `came` passes. `has_state`: kernels write
  /// an optimizer state, too. A score that does not count is zero.
  void send(std::int64_t step, std::shared_ptr<const Event> came, bool has_state = false,
            bool counts = true);

  std::size_t under_way() const { return sent_ - taken_; }
  /// Whether the oldest one under way has arrived. There must be one.
  bool has_come() const;
  void wait() const;

  /// Takes the oldest one, which has arrived.
  Outcome take();

 private:
  struct Slot {
    std::int64_t step = 0;
    bool has_state = false;
    bool counts = true;
    std::shared_ptr<const Event> came;
  };
  const Slot& oldest() const { return slots_[taken_ % k_most_under_way]; }

  Buffer seen_; ///< Pinned.
  std::array<Slot, k_most_under_way> slots_;
  std::size_t sent_ = 0;
  std::size_t taken_ = 0;
};

} // namespace trainer
