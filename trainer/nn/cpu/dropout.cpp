#include "trainer/nn/cpu/dropout.h"

namespace trainer {

Dropout::Dropout(const DropoutRule& rule, std::uint32_t site, const CpuKernels& kernels)
    : rule_(rule), site_(site), scale_(rule.scale()), kernels_(&kernels) {}

void Dropout::draw(const TextPass& pass, std::size_t words) {
  if (!pass.is_training || rule_.threshold() == 0) {
    bits_.clear();
    return;
  }
  bits_.resize(pass.rows * words);
  kernels_->transformer.keep_bits(rule_.bits(site_, pass, words), bits_.size(), bits_.data());
}

} // namespace trainer
