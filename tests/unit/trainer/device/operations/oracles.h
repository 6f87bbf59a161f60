// Loops in float64: what operations compute, and the gradients of what they compute.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/unit/trainer/device/operations/operation.h"
#include "trainer/device/text_kernels.h"

namespace trainer::test {

using Ids = std::vector<std::int32_t>;

/// Below `end`, with some that come again and again.
Ids ids_below(std::size_t count, std::size_t end);

/// -log of a label's share, and its gradient at the logits.
struct CrossEntropy {
  double loss;
  Doubles change;
};
CrossEntropy cross_entropy(const Doubles& logits, std::size_t label);

/// y (rows, outputs) = x (rows, inputs) · weightᵀ + bias
Doubles dense(const DenseShape& shape, const Doubles& x, const Doubles& weight,
              const Doubles& bias);
/// The gradients from dy.
struct DenseGradients {
  Doubles dx;
  Doubles dweight;
  Doubles dbias;
};
DenseGradients dense_gradients(const DenseShape& shape, const Doubles& x, const Doubles& weight,
                               const Doubles& dy);

struct Convolved {
  Doubles y;
  std::vector<std::uint8_t> chosen;
  Doubles margins; ///< Of each choice over the next.
};
Convolved convolve(const ConvolutionShape& shape, const Doubles& x, const Doubles& weight,
                   const Doubles& bias);
/// Likewise, given which was chosen.
DenseGradients convolution_gradients(const ConvolutionShape& shape, const Doubles& x,
                                     const Doubles& weight, const Doubles& dy,
                                     const std::vector<std::uint8_t>& chosen);

struct Normed {
  Doubles y;
  Doubles moments; ///< Mean and 1 / deviation of each row.
};
Normed norm(const NormShape& shape, const Doubles& x, const Doubles& gain, const Doubles& shift);
struct NormGradients {
  Doubles dx;
  Doubles dgain;
  Doubles dshift;
};
NormGradients norm_gradients(const NormShape& shape, const Doubles& x, const Doubles& gain,
                             const Doubles& dy);

/// What attention reads.
struct AttentionInputs {
  AttentionShape shape;
  Ids lengths;
  std::vector<std::uint16_t> keep = {}; ///< Empty: nothing is dropped.
  double scale = 1.25;                  ///< Of what is kept.

  /// What dropout multiplies a probability by.
  double kept(std::size_t line, std::size_t key) const;
};
struct AttentionGradients {
  Doubles dquery;
  Doubles dkey;
  Doubles dvalue;
};
Doubles attention(const AttentionInputs& in, const Doubles& query, const Doubles& key,
                  const Doubles& value);
AttentionGradients attention_gradients(const AttentionInputs& in, const Doubles& query,
                                       const Doubles& key, const Doubles& value,
                                       const Doubles& dcontext);

/// Whether bit `i` of a row of keep bits is 1.
inline bool is_kept(const std::uint16_t* row, std::size_t i) {
  return (row[i / k_keep_bits] >> i % k_keep_bits & 1) != 0;
}

} // namespace trainer::test
