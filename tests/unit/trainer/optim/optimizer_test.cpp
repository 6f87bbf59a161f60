#include "trainer/optim/optimizer.h"

#include <doctest/doctest.h>

#include <cmath>

#include "tests/unit/trainer/optim/torch_vectors.h"
#include "trainer/device/cpu/cpu_device.h"

using namespace trainer;

namespace {

constexpr std::size_t k_count = 48;
constexpr int k_steps = 5;

/// As vectors.py has PyTorch do it; with `pieces` in two calls where the rule lets it.
std::vector<float> trained(const TorchCase& torch, const CpuKernels& kernels, bool pieces) {
  CpuDevice device(kernels);
  TensorTable tensors;
  tensors.add("a", {16});
  tensors.add("b", {32});
  const Buffer parameters(k_count);
  const Buffer gradients(k_count);
  const Buffer clip(2);
  for (std::size_t i = 0; i < k_count; ++i) {
    parameters.data()[i] = static_cast<float>(std::cos(0.3 * static_cast<double>(i)));
  }
  Optimizer optimizer({.rule = parse_rule(torch.rule),
                       .learning_rate = 0.01,
                       .momentum = torch.momentum,
                       .weight_decay = torch.weight_decay},
                      parameters.span(), gradients.span(), device, &tensors);
  for (int step = 1; step <= k_steps; ++step) {
    for (std::size_t i = 0; i < k_count; ++i) {
      gradients.data()[i] = static_cast<float>(std::sin(0.1 * static_cast<double>(i) + step));
    }
    const float* factor = nullptr;
    if (torch.clip_norm > 0) {
      double squares = 0;
      kernels.squares(device.stream(), k_count, gradients.data(), &squares);
      kernels.clip(device.stream(), &squares, static_cast<float>(torch.clip_norm), clip.data(),
                   clip.data() + 1);
      factor = clip.data() + 1;
    }
    optimizer.begin_step();
    optimizer.update(0, pieces ? 16 : k_count, factor);
    if (pieces) {
      optimizer.update(16, k_count, factor);
    }
  }
  return {parameters.span().begin(), parameters.span().end()};
}

} // namespace

TEST_CASE("optimizers take PyTorch's steps, whole or piece by piece, with either set of kernels") {
  for (const TorchCase& torch : k_torch_cases) {
    CAPTURE(torch.rule);
    CAPTURE(torch.weight_decay);
    for (const CpuKernels* kernels : {&portable_kernels(), &best_kernels()}) {
      const std::vector<float> ours = trained(torch, *kernels, false);
      REQUIRE(torch.parameters.size() == ours.size());
      for (std::size_t i = 0; i < ours.size(); ++i) {
        CHECK(std::abs(ours[i] - torch.parameters[i]) < 1e-6);
      }
      CHECK(trained(torch, *kernels, true) == ours);
    }
  }
}
