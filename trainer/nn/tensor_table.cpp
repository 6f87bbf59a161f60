#include "trainer/nn/tensor_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "trainer/device/cpu/kernels.h"
#include "trainer/errors.h"

namespace trainer {
std::size_t floats_in(std::span<const ArenaRange> ranges) {
  std::size_t floats = 0;
  for (const ArenaRange& range : ranges) {
    floats += range.size();
  }
  return floats;
}

std::size_t Tensor::count() const {
  return std::accumulate(shape.begin(), shape.end(), std::size_t{1}, std::multiplies<>());
}

std::size_t Tensor::place_of(std::size_t index) const {
  if (layout == Layout::row_major) {
    return index;
  }
  if (layout == Layout::turned) {
    return index % shape[1] * shape[0] + index / shape[1];
  }
  const std::size_t inputs = size / padded(shape[0]);
  const std::size_t output = index / inputs;
  return (output / k_panel * inputs + index % inputs) * k_panel + output % k_panel;
}

void Tensor::read(std::span<const float> held, std::span<float> to) const {
  for (std::size_t i = 0, last = count(); i < last; ++i) {
    to[i] = held[place_of(i)];
  }
}

void Tensor::write(std::span<const float> from, std::span<float> held) const {
  for (std::size_t i = 0, last = count(); i < last; ++i) {
    held[place_of(i)] = from[i];
  }
}

void check_shape(const Tensor& own, const std::string& name,
                 const std::vector<std::size_t>* shape) {
  if (shape == nullptr) {
    throw DataError(fmt::format("no tensor {}", name));
  }
  if (*shape != own.shape) {
    throw DataError(fmt::format("tensor {} has shape [{}] where the model's is [{}]", name,
                                fmt::join(*shape, ", "), fmt::join(own.shape, ", ")));
  }
}

std::size_t TensorTable::begin_unit() {
  units_.push_back({arena_size_, arena_size_});
  return units_.size() - 1;
}

std::size_t TensorTable::add(std::string name, std::vector<std::size_t> shape, Layout layout) {
  const std::size_t unit = units_.empty() ? 0 : units_.back().first;
  Tensor tensor{std::move(name), std::move(shape), layout, arena_size_, arena_size_ - unit, 0};
  tensor.size = layout == Layout::panels
                    ? tensor.count() / tensor.shape[0] * padded(tensor.shape[0])
                    : padded(tensor.count());
  arena_size_ += tensor.size;
  if (!units_.empty()) {
    units_.back().last = arena_size_;
  }
  tensors_.push_back(std::move(tensor));
  return tensors_.size() - 1;
}

std::vector<NamedTensor> TensorTable::export_arena(std::span<const float> arena,
                                                   const std::string& prefix) const {
  std::vector<NamedTensor> all;
  for (const Tensor& tensor : tensors_) {
    NamedTensor& named = all.emplace_back(
        NamedTensor{prefix + tensor.name, tensor.shape, std::vector<float>(tensor.count())});
    tensor.read(arena.subspan(tensor.offset, tensor.size), named.values);
  }
  return all;
}

void TensorTable::import_arena(const std::vector<NamedTensor>& tensors, std::span<float> arena,
                               const std::string& prefix) const {
  for (const Tensor& tensor : tensors_) {
    const auto named = std::find_if(tensors.begin(), tensors.end(), [&](const NamedTensor& t) {
      return t.name == prefix + tensor.name;
    });
    check_shape(tensor, prefix + tensor.name, named == tensors.end() ? nullptr : &named->shape);
    tensor.write(named->values, arena.subspan(tensor.offset, tensor.size));
  }
}

std::string TensorTable::first_not_finite(std::span<const float> arena) const {
  const auto wrong =
      std::find_if(arena.begin(), arena.end(), [](float value) { return !std::isfinite(value); });
  return wrong == arena.end() ? "" : holder(static_cast<std::size_t>(wrong - arena.begin())).name;
}

std::string TensorTable::suspect(std::span<const float> arena) const {
  const auto size_of = [](float value) { // Of what is no number, larger than any.
    return std::isfinite(value) ? std::abs(value) : std::numeric_limits<float>::infinity();
  };
  const auto worst = std::max_element(arena.begin(), arena.end(),
                                      [&](float a, float b) { return size_of(a) < size_of(b); });
  return fmt::format("{}, which holds {:g}",
                     holder(static_cast<std::size_t>(worst - arena.begin())).name, *worst);
}

const Tensor& TensorTable::holder(std::size_t at) const {
  return *std::find_if(tensors_.begin(), tensors_.end(),
                       [&](const Tensor& tensor) { return at < tensor.offset + tensor.size; });
}

} // namespace trainer
