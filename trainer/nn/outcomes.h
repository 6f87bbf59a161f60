// What steps have come to, on its way from the device to the host.
//
// A step's kernels put it in pinned memory of the host, which reads it when it has come: a step or
// two later, or at once where the device is the host. So no step waits for a number that is
// only reported, and nothing is copied.
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

/// What kernels write to.
struct Seen {
  Score score;
  StepState state;
};

class Outcomes {
 public:
  static constexpr std::size_t k_most_under_way = 4;

  explicit Outcomes(Device& device);

  /// Zero, for the kernels that are put on the device's stream from now on. Fewer than
  /// k_most_under_way may be under way.
  Seen* begin();
  /// What the stream's kernels write there is on its way, and `came` passes when it has come; of
  /// step `step`. `has_state`: one is among it. Where its score does not count, that is zero.
  void send(std::int64_t step, std::shared_ptr<const Event> came, bool has_state = false,
            bool counts = true);

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
