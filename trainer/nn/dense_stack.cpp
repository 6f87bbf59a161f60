#include "trainer/nn/dense_stack.h"

#include <cmath>

#include <fmt/format.h>

#include "trainer/errors.h"
#include "trainer/random.h"

namespace trainer {

DenseStack::DenseStack(Device& device, std::size_t inputs, const ModelOptions& options,
                       TensorTable& tensors)
    : device_(device) {
  constexpr std::size_t k_most = 256; // Labels are bytes.
  if (options.classes > k_most) {
    throw UsageError(fmt::format("a model of {} classes: at most {}", options.classes, k_most));
  }
  std::vector<std::size_t> widths = {inputs};
  widths.insert(widths.end(), options.hidden.begin(), options.hidden.end());
  widths.push_back(options.classes);
  const std::size_t count = widths.size() - 1;
  sizes_.resize(count);
  for (std::size_t i = count; i-- > 0;) {
    const std::string name = i + 1 == count               ? "output"
                             : options.hidden.size() == 1 ? "hidden"
                                                          : fmt::format("hidden{}", i + 1);
    const std::size_t unit = tensors.begin_unit();
    const std::size_t bias = tensors.add(name + ".bias", {widths[i + 1]});
    const std::size_t weight = tensors.add(name + ".weight", {widths[i + 1], widths[i]});
    const auto& [first, last] = tensors.units()[unit];
    sizes_[i] = {widths[i], widths[i + 1], unit, tensors[bias].in_unit, tensors[weight].in_unit,
                 first,     last};
  }
}

std::string DenseStack::describe() const {
  std::string text = fmt::format("{}", sizes_.front().inputs);
  for (const Size& size : sizes_) {
    text += fmt::format("-{}", size.outputs);
  }
  return text;
}

double DenseStack::flops() const {
  double sum = 0;
  for (const Size& size : sizes_) {
    sum += (&size == &sizes_.front() ? 4.0 : 6.0) * static_cast<double>(size.inputs * size.outputs);
  }
  return sum;
}

void DenseStack::initialize(std::uint64_t seed, std::uint32_t layer, std::span<float> arena) const {
  for (const Size& size : sizes_) {
    const float limit = std::sqrt(6.0F / static_cast<float>(size.inputs + size.outputs));
    for (std::size_t i = 0; i < size.inputs; ++i) {
      for (std::size_t o = 0; o < size.outputs; ++o) {
        const auto bits = random_at(seed, RandomStream::weights, layer, i * size.outputs + o);
        arena[size.first + size.weight + o * size.inputs + i] = limit * (2 * uniform(bits[0]) - 1);
      }
    }
    ++layer;
  }
}

/// For as many rows as have come so far.
void DenseStack::make_room(std::size_t rows) {
  if (rows <= rows_) {
    return;
  }
  outputs_.clear(); // Which waits for what reads them.
  changes_.clear();
  for (const Size& size : sizes_) {
    outputs_.push_back(device_.allocate(rows * size.outputs, DType::f32));
    changes_.push_back(device_.allocate(rows * size.outputs, DType::f32));
  }
  rows_ = rows;
}

void DenseStack::forward(std::size_t rows, const float* x, const std::uint8_t* labels,
                         const float* scale, Score* to) {
  make_room(rows);
  const LayerKernels& kernels = *device_.kernels().layers;
  Stream& stream = device_.stream();
  for (std::size_t i = 0; i < sizes_.size(); ++i) {
    const Size& size = sizes_[i];
    const float* const weights = memory_[size.unit].weights;
    kernels.dense(stream, {rows, size.inputs, size.outputs}, x, weights + size.weight,
                  weights + size.bias, i + 1 < sizes_.size(), outputs_[i].data());
    x = outputs_[i].data();
  }
  kernels.softmax_cross_entropy(stream, rows, sizes_.back().outputs, x, labels, scale,
                                changes_.back().data(), to);
}

void DenseStack::backward(std::size_t rows, const float* x, bool accumulate, ParameterOwner& owner,
                          float* dx) {
  const LayerKernels& kernels = *device_.kernels().layers;
  Stream& stream = device_.stream();
  for (std::size_t i = sizes_.size(); i-- > 0;) {
    const Size& size = sizes_[i];
    const DenseShape shape{rows, size.inputs, size.outputs};
    const float* const from = i == 0 ? x : outputs_[i - 1].data();
    const float* const dy = changes_[i].data(); // (B, O)
    const UnitMemory& memory = memory_[size.unit];
    kernels.dense_backward_weight(stream, shape, from, dy, accumulate,
                                  memory.gradients + size.weight, memory.gradients + size.bias);
    float* const to = i == 0 ? dx : changes_[i - 1].data(); // (B, I)
    if (to != nullptr) {
      kernels.dense_backward_input(stream, shape, dy, memory.weights + size.weight, from, to);
    }
    owner.final(size.last);
    owner.done(size.unit);
  }
}

} // namespace trainer
