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
namespace {

/// to[column][row] = from[row][column], with row strides. Works by tiles whose cache lines stay in
/// the L1 cache, which is ten times as fast as value by value.
void transpose(std::size_t rows, std::size_t columns, const float* from, std::size_t from_row,
               float* to, std::size_t to_row) {
  constexpr std::size_t k_tile = 16;
  for (std::size_t row0 = 0; row0 < rows; row0 += k_tile) {
    const std::size_t row_end = std::min(row0 + k_tile, rows);
    for (std::size_t column0 = 0; column0 < columns; column0 += k_tile) {
      const std::size_t column_end = std::min(column0 + k_tile, columns);
      for (std::size_t column = column0; column < column_end; ++column) {
        for (std::size_t row = row0; row < row_end; ++row) {
          to[column * to_row + row] = from[row * from_row + column];
        }
      }
    }
  }
}

} // namespace

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

void Tensor::read_rows(std::span<const float> held, std::size_t first, std::span<float> to) const {
  if (layout == Layout::row_major) {
    std::copy_n(held.data() + (shape.empty() ? 0 : first * (count() / shape[0])), to.size(),
                to.data());
    return;
  }
  const std::size_t columns = count() / shape[0];
  const std::size_t last = first + to.size() / columns;
  if (layout == Layout::turned) {
    transpose(columns, last - first, held.data() + first, shape[0], to.data(), columns);
    return;
  }
  for (std::size_t row = first; row < last;) { // Rows of one panel at a time.
    const std::size_t end = std::min(last, (row / k_panel + 1) * k_panel);
    transpose(columns, end - row, held.data() + place_of(row * columns), k_panel,
              to.data() + (row - first) * columns, columns);
    row = end;
  }
}

void Tensor::read(std::span<const float> held, std::span<float> to) const {
  read_rows(held, 0, to.first(count()));
}

void Tensor::write(std::span<const float> from, std::span<float> held) const {
  if (layout == Layout::row_major) {
    std::copy_n(from.data(), count(), held.data());
    return;
  }
  const std::size_t columns = count() / shape[0];
  const std::size_t rows_of_panel = layout == Layout::turned ? shape[0] : k_panel;
  for (std::size_t row = 0; row < shape[0]; row += rows_of_panel) {
    transpose(std::min(rows_of_panel, shape[0] - row), columns, from.data() + row * columns,
              columns, held.data() + place_of(row * columns), rows_of_panel);
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

std::size_t TensorTable::add_embedding(std::string name, std::size_t rows, std::size_t width) {
  const std::size_t number = add(std::move(name), {rows, width});
  tensors_[number].is_embedding = true;
  return number;
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
  const auto size_of = [](float value) { // A NaN counts as larger than any number.
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
