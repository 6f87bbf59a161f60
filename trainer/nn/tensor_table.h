// What lies where in an arena: the tensors of a model by their published names.
//
// An arena is one flat run of fp32: a model's parameters, their gradients, or an optimizer's
// moments, all laid out alike. Each tensor begins at a multiple of 16 floats and is filled up to
// one, with zeros that stay zeros, so that an arena may be cut at any such multiple. A unit is a
// contiguous range of tensors that are used together: a layer. A tensor's layout
// there is row-major, or, where a copy for the kernels would cost speed, the panels that they read
// (device/cpu/kernels.h). What leaves an arena by name is always row-major, and of the shape that
// its model is published with.
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
  turned, ///< Of [inputs, outputs], as GPT-2's weights are published: (outputs, inputs).
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
  std::size_t offset = 0;  ///< In the arena, in floats.
  std::size_t in_unit = 0; ///< From its unit's first value.
  std::size_t size = 0;    ///< Floats that it takes there.
  /// A row of it is looked up by the number of a word, a position or a type.
  bool is_embedding = false;

  std::size_t count() const; ///< Its values.
  ArenaRange range() const { return {offset, offset + size}; }

  /// Where value `index`, as others count them, lies in what the tensor takes in an arena.
  std::size_t place_of(std::size_t index) const;
  /// All values as others store them, from what the tensor takes in an arena, and back to it.
  void read(std::span<const float> held, std::span<float> to) const;
  /// Of them as many whole rows of shape[0], from row `first` on, as `to` has room for.
  void read_rows(std::span<const float> held, std::size_t first, std::span<float> to) const;
  void write(std::span<const float> from, std::span<float> held) const;
};

/// A tensor as others store it.
struct NamedTensor {
  std::string name;
  std::vector<std::size_t> shape;
  std::vector<float> values;
};

/// Throws DataError, naming the tensor `name`, unless its shape there is `own`'s; nullptr: there is
/// none.
void check_shape(const Tensor& own, const std::string& name, const std::vector<std::size_t>* shape);

class TensorTable {
 public:
  /// Of what is added from here on; its number.
  std::size_t begin_unit();
  /// At the arena's end, in the unit that was begun last; its number.
  std::size_t add(std::string name, std::vector<std::size_t> shape,
                  Layout layout = Layout::row_major);
  /// The same, of an embedding, (rows, width).
  std::size_t add_embedding(std::string name, std::size_t rows, std::size_t width);

  const std::vector<Tensor>& tensors() const { return tensors_; }
  const Tensor& operator[](std::size_t number) const { return tensors_[number]; }
  /// In the order of the arena, which they fill.
  const std::vector<ArenaRange>& units() const { return units_; }
  std::size_t arena_size() const { return arena_size_; } ///< In floats.

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
  /// The tensor that value `at` of an arena is of.
  const Tensor& holder(std::size_t at) const;

 private:
  std::vector<Tensor> tensors_;
  std::vector<ArenaRange> units_;
  std::size_t arena_size_ = 0;
};

} // namespace trainer
