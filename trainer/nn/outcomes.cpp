#include "trainer/nn/outcomes.h"

#include <cstring>

namespace trainer {
namespace {

/// On the host.
struct Seen {
  Score score;
  StepState state;
};

template <typename T>
T* slot_of(const Buffer& slots, std::size_t number) {
  return static_cast<T*>(slots.memory()) + number % Outcomes::k_most_under_way;
}

} // namespace

Outcomes::Outcomes(Device& device)
    : stream_(device.stream()),
      on_device_(device.allocate(k_most_under_way * sizeof(Score), DType::u8)),
      on_host_(device.allocate_pinned(k_most_under_way * sizeof(Seen), DType::u8)) {}

Score* Outcomes::begin() {
  auto* const slot = slot_of<Score>(on_device_, sent_);
  stream_.clear(slot, sizeof *slot);
  return slot;
}

void Outcomes::send(std::int64_t step, const StepState* state) {
  auto* const seen = slot_of<Seen>(on_host_, sent_);
  stream_.copy(slot_of<Score>(on_device_, sent_), &seen->score, sizeof(Score));
  if (state != nullptr) {
    stream_.copy(state, &seen->state, sizeof *state);
  }
  slots_[sent_ % k_most_under_way] = {step, state != nullptr, stream_.record()};
  ++sent_;
}

bool Outcomes::has_come() const { return oldest().came->has_passed(); }

void Outcomes::wait() const { oldest().came->wait(); }

Outcome Outcomes::take() {
  Seen seen;
  std::memcpy(&seen, slot_of<Seen>(on_host_, taken_), sizeof seen);
  const Slot& slot = oldest();
  ++taken_;
  return {slot.step, seen.score, slot.has_state ? std::optional(seen.state) : std::nullopt};
}

} // namespace trainer
