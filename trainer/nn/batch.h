// What a model is given to learn from: rows of typed, named fields, in its device's memory.
//
// A batch's loss is the sum over its rows, divided by what the rows of all ranks together count
// for: one each, and nothing for a row that only fills a place. What is scored within a row is
// divided by its own number there: a row of text has the mean over its masked tokens. So a batch
// has one loss, however its rows are split among ranks and whatever is masked in them.
#pragma once

#include <algorithm>
#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>

#include "trainer/device/kernels.h"

namespace trainer {

/// All fields that a batch may have. Letters: T tokens a row, of which K may be masked.
namespace field {

enum class Name : std::uint8_t { images, labels, ids, lengths, masked, targets };
inline constexpr std::size_t k_names = 6;

/// Names a field whose values are of this type.
template <typename T>
struct Key {
  Name name;
  DType type;
};
using Floats = Key<float>;
using Numbers = Key<std::int32_t>;

inline constexpr Floats images{Name::images, DType::f32};  ///< (rows, pixels), in [0, 1]
inline constexpr Numbers labels{Name::labels, DType::i32}; ///< (rows), from 0 on
inline constexpr Numbers ids{Name::ids, DType::i32};       ///< (rows, T), as the model sees them.
/// (rows): what is behind so many is padding.
inline constexpr Numbers lengths{Name::lengths, DType::i32};
/// (rows, K): where in the row, rising; -1 past the last.
inline constexpr Numbers masked{Name::masked, DType::i32};
inline constexpr Numbers targets{Name::targets, DType::i32}; ///< (rows, K): what stood there.

} // namespace field

/// Valid until the loader moves on.
struct Batch {
  struct Field {
    const void* memory = nullptr; ///< Null: no such field, or a batch for plans, of shapes alone.
    std::size_t width = 0;        ///< Values of a row.
    DType type = DType::f32;
  };

  std::size_t rows = 0;
  std::size_t weight = 1; ///< Of each row; 0: nothing is left for this rank, and it fills a place.
  std::size_t global_rows = 0; ///< That count, of all ranks together.
  std::uint64_t position = 0;  ///< Of the first row in the stream of samples.
  double seconds = 0;          ///< Spent gathering it.
  std::array<Field, field::k_names> fields = {};
  /// What makes it, to be put on the device's stream yet.
  std::optional<Gathering> gathering = {};

  Field& operator[](field::Name name) { return fields[static_cast<std::size_t>(name)]; }
  const Field& operator[](field::Name name) const { return fields[static_cast<std::size_t>(name)]; }

  /// (rows, width)
  template <typename T>
  std::span<const T> operator[](field::Key<T> key) const {
    const Field& found = (*this)[key.name];
    assert(found.memory == nullptr || found.type == key.type);
    return {static_cast<const T*>(found.memory), found.memory == nullptr ? 0 : rows * found.width};
  }

  /// And so many values of each row; they outlive it.
  template <typename T>
  Batch with(field::Key<T> key, std::type_identity_t<std::span<const T>> values) const {
    Batch more = *this;
    more[key.name] = {values.data(), values.size() / rows, key.type};
    return more;
  }

  std::size_t counted() const { return weight * rows; }

  /// Rows [first, first + count), or up to the end.
  Batch slice(std::size_t first, std::size_t count) const {
    Batch part{.rows = std::min(count, rows - first),
               .weight = weight,
               .position = position + first,
               .fields = fields};
    for (Field& one : part.fields) {
      if (one.memory != nullptr) {
        one.memory =
            static_cast<const std::byte*>(one.memory) + first * one.width * size_of(one.type);
      }
    }
    return part;
  }
};

} // namespace trainer
