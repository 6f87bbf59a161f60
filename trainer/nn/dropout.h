// Dropout: which values of a pass are kept, a bit a value, drawn once and used by forward and
// backward. They are a pure function of seed, site in the model and position in the stream of
// samples, so that they are the same on any number of ranks, in passes of any size, and after a
// resume.
#pragma once

#include <cstddef>
#include <cstdint>

#include "trainer/device/kernels.h"

namespace trainer {

/// Rows of T tokens that go through a model together.
struct TextPass {
  std::size_t rows = 0;   ///< B
  std::size_t length = 0; ///< T
  const std::int32_t* lengths = nullptr;
  std::uint64_t position = 0; ///< Of the first row in the stream of samples.
  bool is_training = false;   ///< Drops.
  bool accumulate = false;    ///< Gradients are added to those of the pass before.

  std::size_t tokens() const { return rows * length; }
};

struct DropoutRule {
  double probability = 0;
  std::uint64_t seed = 0;

  /// A number of 16 bits below it drops; what is kept is multiplied by scale().
  std::uint32_t threshold() const;
  float scale() const;
  /// Of a pass whose rows have `words` words each.
  KeepBits bits(std::uint32_t site, const TextPass& pass, std::size_t words) const;
};

} // namespace trainer
