// What lies where in an arena: the tensors of a model by their published names.
//
// An arena is one flat run of fp32: a model's parameters, their gradients, or an optimizer's
// moments, all laid out alike. Each tensor begins at a multiple of 16 floats and is filled up to
// one, with zeros that stay zeros, so that an arena may be cut at any such multiple. Its layout
// there is row-major, or, where a copy for the kernels would cost speed, the panels that they read
// (device/cpu/kernels.h). What leaves an arena by name is always row-major, weights as
// [outputs, inputs].
//
// TensorRange is how shards, parameter servers and checkpoints say which part of a tensor they
// mean.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace trainer {

enum class Layout : std::uint8_t {
  row_major,
  panels, ///< Of [outputs, inputs…]: (outputs / 16, inputs, 16), outputs filled up.
};

struct Tensor {
  std::string name; ///< "hidden.weight"
  std::vector<std::size_t> shape;
  Layout layout = Layout::row_major;
  std::size_t offset = 0; ///< In the arena, in floats.
  std::size_t size = 0;   ///< Floats that it takes there.

  std::size_t count() const; ///< Its values.
};

/// Values [first, last) of a tensor as others store it, and where in somebody's memory they begin.
struct TensorRange {
  std::size_t tensor = 0; ///< In the table.
  std::size_t first = 0;
  std::size_t last = 0;
  std::size_t offset = 0;

  bool operator==(const TensorRange&) const = default;
};

/// A tensor as others store it.
struct NamedTensor {
  std::string name;
  std::vector<std::size_t> shape;
  std::vector<float> values;
};

class TensorTable {
 public:
  /// At the arena's end; its number.
  std::size_t add(std::string name, std::vector<std::size_t> shape,
                  Layout layout = Layout::row_major);

  const std::vector<Tensor>& tensors() const { return tensors_; }
  const Tensor& operator[](std::size_t number) const { return tensors_[number]; }
  std::size_t arena_size() const { return arena_size_; } ///< In floats.

  /// The values of a range, from an arena, and back to it.
  void read(std::span<const float> arena, const TensorRange& range, std::span<float> to) const;
  void write(std::span<const float> from, const TensorRange& range, std::span<float> arena) const;

  /// All tensors of an arena, each named PREFIX and its name.
  std::vector<NamedTensor> export_arena(std::span<const float> arena,
                                        const std::string& prefix = "") const;
  /// The other way; what else there is among `tensors` is left alone. Throws DataError where one is
  /// missing or has another shape.
  void import_arena(const std::vector<NamedTensor>& tensors, std::span<float> arena,
                    const std::string& prefix = "") const;

  /// The name of the tensor that holds an arena's first value that is no finite number; empty: all
  /// are.
  std::string first_not_finite(std::span<const float> arena) const;
  /// "hidden.weight, which holds nan", or else what holds the value farthest from zero: where to
  /// look for the cause of a loss that is no number.
  std::string suspect(std::span<const float> arena) const;

 private:
  const Tensor& holder(std::size_t at) const;

  std::vector<Tensor> tensors_;
  std::size_t arena_size_ = 0;
};

} // namespace trainer
