#include "trainer/nn/outcomes.h"

#include <cstring>

namespace trainer {
namespace {

Outcome* slot_of(const Buffer& slots, std::size_t number) {
  return static_cast<Outcome*>(slots.memory()) + number % Outcomes::k_most_under_way;
}

} // namespace

Outcomes::Outcomes(Device& device)
    : stream_(device.stream()),
      on_device_(device.allocate(k_most_under_way * sizeof(Outcome), DType::u8)),
      on_host_(device.allocate_pinned(k_most_under_way * sizeof(Outcome), DType::u8)) {}

Outcome* Outcomes::begin() {
  Outcome* slot = slot_of(on_device_, sent_);
  stream_.clear(slot, sizeof *slot);
  return slot;
}

void Outcomes::send(std::int64_t step) {
  stream_.copy(slot_of(on_device_, sent_), slot_of(on_host_, sent_), sizeof(Outcome));
  slots_[sent_ % k_most_under_way] = {step, stream_.record()};
  ++sent_;
}

bool Outcomes::has_come() const { return oldest().came->has_passed(); }

void Outcomes::wait() const { oldest().came->wait(); }

Outcomes::Told Outcomes::take() {
  Told told{oldest().step, {}};
  std::memcpy(&told.outcome, slot_of(on_host_, taken_), sizeof told.outcome);
  ++taken_;
  return told;
}

} // namespace trainer
