#include "trainer/optim/adam.h"

#include <cmath>

namespace trainer {
namespace {
constexpr double k_beta1 = 0.9;
constexpr double k_beta2 = 0.999;
} // namespace

AdamOptimizer::AdamOptimizer(std::span<float> parameters, std::span<const float> gradients,
                             double learning_rate, const CpuKernels& kernels)
    : kernels_(&kernels), parameters_(parameters), gradients_(gradients), m_(parameters.size()),
      v_(parameters.size()), learning_rate_(learning_rate) {}

void AdamOptimizer::begin_step() {
  ++step_;
  const auto t = static_cast<double>(step_);
  constants_.beta1 = static_cast<float>(k_beta1);
  constants_.beta2 = static_cast<float>(k_beta2);
  constants_.step_size = static_cast<float>(learning_rate_ / (1 - std::pow(k_beta1, t)));
  constants_.inverse_correction2 = static_cast<float>(1 / std::sqrt(1 - std::pow(k_beta2, t)));
}

void AdamOptimizer::update(std::size_t first, std::size_t last) {
  kernels_->adam(last - first, constants_, gradients_.data() + first, m_.data() + first,
                 v_.data() + first, parameters_.data() + first);
}

} // namespace trainer
