#include "trainer/nn/outcomes.h"

#include <utility>

namespace trainer {
namespace {

Seen& slot_of(const Buffer& slots, std::size_t number) {
  return static_cast<Seen*>(slots.memory())[number % Outcomes::k_most_under_way];
}

} // namespace

Outcomes::Outcomes(Device& device)
    : seen_(device.allocate_pinned(k_most_under_way * sizeof(Seen), DType::u8)) {}

Seen* Outcomes::begin() {
  Seen& seen = slot_of(seen_, sent_); // Nothing writes to it: its last results have been taken.
  seen = {};
  return &seen;
}

void Outcomes::send(std::int64_t step, std::shared_ptr<const Event> came, bool has_state,
                    bool counts) {
  slots_[sent_ % k_most_under_way] = {step, has_state, counts, std::move(came)};
  ++sent_;
}

bool Outcomes::has_come() const { return oldest().came->has_passed(); }

void Outcomes::wait() const { oldest().came->wait(); }

Outcome Outcomes::take() {
  const Seen& seen = slot_of(seen_, taken_);
  const Slot& slot = oldest();
  ++taken_;
  return {slot.step, slot.counts ? seen.score : Score{},
          slot.has_state ? std::optional(seen.state) : std::nullopt};
}

} // namespace trainer
