#include "trainer/optim/optimizer.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "tests/unit/trainer/optim/torch_vectors.h"
#include "trainer/device/cpu/cpu_device.h"

using namespace trainer;

namespace {

constexpr int k_steps = 5;

/// As vectors.py has PyTorch do it; with `pieces` in two calls where the rule lets it.
std::vector<float> trained(const TorchCase& torch, const CpuKernels& kernels, bool pieces,
                           Layout layout = Layout::row_major) {
  CpuDevice device(kernels);
  TensorTable tensors;
  tensors.add("a", {16});
  if (torch.rows == 0) {
    tensors.add("b", {32});
  } else {
    tensors.add("b", {torch.rows, 32 / torch.rows}, layout);
  }
  const std::size_t floats = tensors.arena_size(); // In panels, b is filled up with zeros.
  const Buffer parameters(floats);
  const Buffer gradients(floats);
  const auto fill = [&](const Buffer& arena, const auto& value) {
    std::vector<NamedTensor> named = tensors.export_arena(arena.span());
    std::size_t i = 0;
    for (NamedTensor& tensor : named) {
      for (float& each : tensor.values) {
        each = static_cast<float>(value(static_cast<double>(i++)));
      }
    }
    tensors.import_arena(named, arena.span());
  };
  fill(parameters, [](double i) { return std::cos(0.3 * i); });
  Optimizer optimizer({.rule = parse_rule(torch.rule),
                       .learning_rate = 0.01,
                       .momentum = torch.momentum,
                       .weight_decay = torch.weight_decay,
                       .decays_vectors = torch.decays_vectors},
                      parameters.span(), gradients.span(), device, &tensors);
  optimizer.set_limits({.clip_norm = torch.clip_norm});
  for (int step = 1; step <= k_steps; ++step) {
    fill(gradients, [&](double i) { return std::sin(0.1 * i + step); });
    optimizer.begin_step();
    if (torch.clip_norm > 0) {
      SquareSum squares;
      kernels.squares(device.stream(), floats, gradients.data(), 0, &squares);
      optimizer.prepare(&squares);
    }
    optimizer.update(0, pieces ? 16 : floats);
    if (pieces) {
      optimizer.update(16, floats);
    }
  }
  std::vector<float> all;
  for (const NamedTensor& tensor : tensors.export_arena(parameters.span())) {
    all.insert(all.end(), tensor.values.begin(), tensor.values.end());
  }
  return all;
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
      if (torch.rows > 0) { // As the CPU's models have matrices.
        const std::vector<float> in_panels = trained(torch, *kernels, false, Layout::panels);
        for (std::size_t i = 0; i < ours.size(); ++i) {
          CHECK(std::abs(in_panels[i] - torch.parameters[i]) < 1e-6);
        }
      }
    }
  }
}

TEST_CASE("a step that overflows changes nothing but the loss scale, and is no step of Adam's") {
  CpuDevice device;
  const Buffer gradients(16);
  const auto run = [&](const std::vector<int>& steps) {
    Buffer parameters(16);
    Optimizer adam({.learning_rate = 0.01}, parameters.span(), gradients.span(), device);
    adam.set_limits(
        {.skips_overflows = true, .loss_scale = {.fixed = 0, .initial_power = 3, .hysteresis = 1}});
    adam.set_state(0, 0, {.scale = 8, .hysteresis = 1});
    for (const int step : steps) {
      adam.announce_step(4);
      const float scale = adam.state()->loss_factor * 4; // What gradients come multiplied by.
      for (std::size_t i = 0; i < gradients.size(); ++i) {
        gradients.data()[i] = scale * static_cast<float>(std::sin(static_cast<double>(i) + step));
      }
      if (step == 0) {
        gradients.data()[7] = std::numeric_limits<float>::infinity();
      }
      SquareSum squares;
      device.kernels().squares(device.stream(), gradients.size(), gradients.data(), 0, &squares);
      adam.prepare(&squares);
      CHECK(is_skipped(*adam.state()) == (step == 0));
      adam.begin_step();
      adam.update(0, gradients.size());
    }
    CHECK(adam.step() == static_cast<std::int64_t>(steps.size()));
    CHECK(adam.state()->skipped == std::count(steps.begin(), steps.end(), 0));
    return std::pair(std::vector<float>(parameters.span().begin(), parameters.span().end()),
                     adam.state()->loss_scale.scale);
  };
  const auto [clean, scale] = run({1, 2, 3});
  const auto [skipping, lower] = run({0, 1, 2, 0, 3});
  CHECK(skipping == clean);
  CHECK(scale == 8);
  CHECK(lower == 2);
}

TEST_CASE("a step takes the learning rate of as many skipped steps as the device knows of") {
  CpuDevice device;
  const Buffer parameters(16);
  const Buffer gradients(16);
  Optimizer sgd({.rule = OptimizerOptions::Rule::sgd}, parameters.span(), gradients.span(), device);
  sgd.set_limits({.clip_norm = 1});
  sgd.set_learning_rates({0.1, 0.2, 0.3, 0.4}); // The host does not learn of what is skipped here.
  const SquareSum wrong{std::numeric_limits<double>::quiet_NaN(), 7};
  for (const double rate : {0.1, 0.2, 0.3, 0.4, 0.4}) {
    sgd.announce_step();
    CHECK(sgd.state()->learning_rate == rate);
    sgd.prepare(&wrong);
  }
}
