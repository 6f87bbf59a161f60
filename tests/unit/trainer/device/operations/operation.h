// Every operation of every device beside the same in float64, by plain loops.
//
// One table for all devices: each set of the CPU's kernels goes through it, the GPU's kernels as
// they are compiled for the CPU, and a GPU's own (unit-trainer, unit-cuda, unit-gpu); where a
// device keeps activations in bf16, in that too. The loops of a gradient (oracles.h) are held to
// finite differences, in float64 as well, so that no device takes part in that.
//
// Another operation, or another shape: an entry in flat.cpp, layers.cpp, convolution.cpp, text.cpp
// or attention.cpp. Products have a table of their own (matmul_oracle.h).
#pragma once

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "tests/unit/trainer/device/on_device.h"

namespace trainer::test {

using Doubles = std::vector<double>;

/// What an operation leaves undefined.
inline constexpr double k_anything = INFINITY;

struct Array {
  Values before; ///< NaN: to be written.
  /// In what the device keeps activations in; else in float32.
  bool is_activation = false;
  std::size_t begin = 0; ///< Values from where 256 bytes begin.
};

inline Array activations(Values before, std::size_t begin = 0) {
  return {std::move(before), true, begin};
}
inline Array to_write(std::size_t count) { return {Values(count, NAN)}; }
inline Array activations_to_write(std::size_t count) { return activations(Values(count, NAN)); }

struct Operation {
  std::string name;
  std::vector<Array> arrays = {};
  /// Runs it to the end. What it finds beside the arrays, as a score.
  std::function<Doubles(Device&, const std::vector<TypedPointer>&)> run = {};
  /// Does the same to the arrays, and returns the same.
  std::function<Doubles(std::vector<Doubles>&)> expected = {};
  double tolerance = 1e-5; ///< Of each value, and of its size.
  double of_halves = 4e-3; ///< The same where activations are bf16: they are rounded.
};

/// To the end of what was put on the device's stream.
inline Doubles finished(Device& device) {
  device.stream().record()->wait();
  return {};
}

/// Runs it, and fails the test for each array that differs, or was written beside its values.
void check(Device& device, const Operation& operation);

std::vector<Operation> flat_operations();
std::vector<Operation> layer_operations();
std::vector<Operation> convolutions();
std::vector<Operation> text_operations();
std::vector<Operation> attentions();

/// All of them.
void check_operations(Device& device);

} // namespace trainer::test
