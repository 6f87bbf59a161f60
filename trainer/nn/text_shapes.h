// The shapes and names of what a transformer is made of, whatever computes it.
#pragma once

#include <cstddef>
#include <string>

namespace trainer {

struct LayerShape {
  std::size_t width = 0; ///< H
  std::size_t heads = 0;
  std::size_t inner = 0; ///< F
  float epsilon = 0;     ///< The norms'.
};

/// Names are those of tensors without ".weight"; empty: no such tensor.
struct EmbeddingShape {
  std::string words;
  std::string positions;
  std::string types;
  std::string norm;
  std::size_t vocabulary = 0;
  std::size_t position_rows = 0;
  std::size_t first_position = 0; ///< The row of a text's first token: RoBERTa's begin at 2.
  std::size_t type_rows = 0;
  std::size_t width = 0;
  float epsilon = 0;
};

/// Likewise: without a dense layer there is no GELU either, and `bias` is the decoder's.
struct HeadNames {
  std::string dense;
  std::string norm;
  std::string bias;
};

} // namespace trainer
