// The layout of an arena: the tensors of a model by their published names.
//
// An arena is one flat array of fp32: a model's parameters, their gradients, or an optimizer's
// moments, all with the same layout. Each tensor begins at a multiple of 16 floats and is padded to
// one with zeros that stay zeros, so that an arena may be cut at any such multiple. A unit is a
// contiguous range of tensors that are used together, a layer. Tensors are row-major, or, where
// copying would cost speed, in the panels that kernels read (device/cpu/kernels.h). A tensor that
// leaves an arena by name is always row-major, with its published shape.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace trainer {

enum class Layout : std::uint8_t {
  row_major,
  panels, ///< [outputs, inputs…] as (outputs / 16, inputs, 16), with outputs padded.
  turned, ///< [inputs, outputs], as GPT-2's weights are published, as (outputs, inputs).
};

/// A contiguous part of an arena, in floats.
struct ArenaRange {
  std::size_t first = 0;
  std::size_t last = 0;

  std::size_t size() const { return last - first; }
  bool operator==(const ArenaRange&) const = default;
};

/// In all of them.
std::size_t floats_in(std::span<const ArenaRange> ranges);

struct Tensor {
  std::string name; ///< "hidden.weight"
  std::vector<std::size_t> shape;
  Layout layout = Layout::row_major;
  std::size_t offset = 0;  ///< Offset in the arena, in floats.
  std::size_t in_unit = 0; ///< Offset from its unit's first value.
  std::size_t size = 0;    ///< Floats that it takes, with padding.
  /// Whether its rows are looked up by the number of a word, a position or a type.
  bool is_embedding = false;

  std::size_t count() const; ///< Number of values, without padding.
  ArenaRange range() const { return {offset, offset + size}; }

  /// The place of value `index` of the row-major tensor within its part of an arena.
  std::size_t place_of(std::size_t index) const;
  /// Converts the tensor's part of an arena to row-major values, and back.
  void read(std::span<const float> held, std::span<float> to) const;
  /// The same for whole rows of shape[0], from row `first` on, as many as `to` has room for.
  void read_rows(std::span<const float> held, std::size_t first, std::span<float> to) const;
  void write(std::span<const float> from, std::span<float> held) const;
};

/// A tensor as it is published: row-major.
struct NamedTensor {
  std::string name;
  std::vector<std::size_t> shape;
  std::vector<float> values;
};

/// Throws DataError that names the tensor `name` if its shape differs from that of `own`, or if it
/// is missing (nullptr).
void check_shape(const Tensor& own, const std::string& name, const std::vector<std::size_t>* shape);

class TensorTable {
 public:
  /// Begins a unit for tensors added from here on; returns its number.
  std::size_t begin_unit();
  /// Adds a tensor at the end of the arena, in the last unit; returns its number.
  std::size_t add(std::string name, std::vector<std::size_t> shape,
                  Layout layout = Layout::row_major);
  /// Adds an embedding (rows, width).
  std::size_t add_embedding(std::string name, std::size_t rows, std::size_t width);

  const std::vector<Tensor>& tensors() const { return tensors_; }
  const Tensor& operator[](std::size_t number) const { return tensors_[number]; }
  /// The units in the order of the arena, which they fill.
  const std::vector<ArenaRange>& units() const { return units_; }
  std::size_t arena_size() const { return arena_size_; } ///< In floats.

  /// All tensors of an arena, with names prefixed.
  std::vector<NamedTensor> export_arena(std::span<const float> arena,
                                        const std::string& prefix = "") const;
  /// Writes tensors to an arena; ignores others among `tensors`. Throws DataError if one is missing
  /// or has another shape.
  void import_arena(const std::vector<NamedTensor>& tensors, std::span<float> arena,
                    const std::string& prefix = "") const;

  /// The name of the tensor with the arena's first value that is not finite; empty if all are.
  std::string first_not_finite(std::span<const float> arena) const;
  /// "hidden.weight, which holds nan", or else the tensor with the largest magnitude: where to look
  /// for the cause of a loss that is not finite.
  std::string suspect(std::span<const float> arena) const;
  /// The tensor that contains value `at` of an arena.
  const Tensor& holder(std::size_t at) const;

 private:
  std::vector<Tensor> tensors_;
  std::vector<ArenaRange> units_;
  std::size_t arena_size_ = 0;
};

} // namespace trainer
