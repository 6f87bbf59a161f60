// Dropout: one keep bit per value, drawn once for forward and backward. The bits are a pure
// function of seed, site in the model and position in the stream of samples, so that they are the
// same on any number of ranks, in passes of any size, and after a resume.
#pragma once

#include <cstddef>
#include <cstdint>

#include "trainer/device/kernels.h"

namespace trainer {

/// A pass: rows of T tokens that go through a model together.
struct TextPass {
  std::size_t rows = 0;   ///< B
  std::size_t length = 0; ///< T
  const std::int32_t* lengths = nullptr;
  bool is_training = false; ///< Applies dropout.
  bool accumulate = false;  ///< Adds gradients to those of the previous pass.

  std::size_t tokens() const { return rows * length; }
};

struct DropoutRule {
  double probability = 0;
  std::uint64_t seed = 0;

  /// A random number of 16 bits below it drops a value; kept values are multiplied by scale().
  std::uint32_t threshold() const;
  float scale() const;
  /// The random numbers of rows of `words` words each, the first of them at `position` in the
  /// stream of samples.
  KeepBits bits(std::uint32_t site, std::uint64_t position, std::size_t words) const;
};

} // namespace trainer
