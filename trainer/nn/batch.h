// A batch: rows of typed, named fields in the memory of the model's device.
//
// The loss of a batch is the sum over its rows, divided by the number of rows on all ranks, where
// padding rows count 0. Within a row the loss is a mean: a row of text has the mean over its masked
// tokens. So the loss does not depend on how rows are split among ranks, or how many tokens are
// masked.
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

/// All fields of batches. Letters: T tokens a row, at most K of them masked.
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
inline constexpr Numbers ids{Name::ids, DType::i32};       ///< (rows, T): tokens after masking.
/// (rows): number of tokens; those after it are padding.
inline constexpr Numbers lengths{Name::lengths, DType::i32};
/// (rows, K): positions of masked tokens, ascending; -1 after the last.
inline constexpr Numbers masked{Name::masked, DType::i32};
inline constexpr Numbers targets{Name::targets, DType::i32}; ///< (rows, K): the tokens to predict.

} // namespace field

/// Valid until the loader moves on.
struct Batch {
  struct Field {
    const void* memory = nullptr; ///< Null: no such field, or a batch of shapes alone, for plans.
    std::size_t width = 0;        ///< Values of a row.
    DType type = DType::f32;
  };

  std::size_t rows = 0;
  std::size_t weight = 1;      ///< Weight of each row; 0: padding rows of a rank without samples.
  std::size_t global_rows = 0; ///< Rows of weight 1 on all ranks.
  std::uint64_t position = 0;  ///< Position of the first row in the stream of samples.
  double seconds = 0;          ///< Time spent gathering it.
  std::array<Field, field::k_names> fields = {};
  /// The gather that fills this batch, still to be queued on the device's stream.
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

  /// Adds a field with so many values per row; they must outlive the batch.
  template <typename T>
  Batch with(field::Key<T> key, std::type_identity_t<std::span<const T>> values) const {
    Batch more = *this;
    more[key.name] = {values.data(), values.size() / rows, key.type};
    return more;
  }

  std::size_t counted() const { return weight * rows; }

  /// Rows [first, first + count), or fewer at the end.
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
