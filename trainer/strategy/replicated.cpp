#include "trainer/strategy/replicated.h"

namespace trainer {

Replicated::Replicated(const std::vector<ArenaRange>& units, const Arenas& arenas)
    : units_(units), arenas_(arenas), is_rounded_(units.size()) {}

std::span<float> Replicated::rounded(std::size_t unit) const {
  return arenas_.rounded.subspan(units_[unit].first, units_[unit].size());
}

// Not in need(), which a graph of a pass leaves out.
void Replicated::begin_pass() {
  if (arenas_.factors != nullptr && !has_factors_) {
    arenas_.device->kernels().narrow(arenas_.device->stream(), arenas_.parameters.size(),
                                     DType::bf16, arenas_.parameters.data(), arenas_.factors);
    has_factors_ = true;
  }
}

void Replicated::round(std::size_t unit) {
  round_to(arenas_.precision, arenas_.parameters.subspan(units_[unit].first, units_[unit].size()),
           rounded(unit));
}

UnitMemory Replicated::need(std::size_t unit) {
  if (arenas_.updated != nullptr) {
    arenas_.updated->wait(arenas_.device->stream(), units_[unit]);
  }
  float* const gradients =
      arenas_.gradients.empty() ? nullptr : arenas_.gradients.data() + units_[unit].first;
  if (arenas_.precision == Precision::fp32) {
    return {arenas_.parameters.data() + units_[unit].first, gradients,
            has_factors_ ? arenas_.factors + units_[unit].first : nullptr};
  }
  if (!is_rounded_[unit]) {
    if (arenas_.device != nullptr) {
      arenas_.device->commit(rounded(unit));
    }
    round(unit);
    is_rounded_[unit] = true;
  }
  return {rounded(unit).data(), gradients};
}

void Replicated::write(std::size_t unit) {
  if (arenas_.device != nullptr && !arenas_.gradients.empty()) {
    arenas_.device->commit(arenas_.gradients.subspan(units_[unit].first, units_[unit].size()));
  }
}

} // namespace trainer
