// Shapes and tensor names of the parts of a transformer.
#pragma once

#include <cstddef>
#include <string>

namespace trainer {

struct LayerShape {
  std::size_t width = 0; ///< H
  std::size_t heads = 0;
  std::size_t inner = 0; ///< F
  float epsilon = 0;     ///< Epsilon of the norms.
};

/// Names of tensors without ".weight"; empty: no such tensor.
struct EmbeddingShape {
  std::string words;
  std::string positions;
  std::string types;
  std::string norm;
  std::size_t vocabulary = 0;
  std::size_t position_rows = 0;
  std::size_t first_position = 0; ///< Position of a text's first token: 2 in RoBERTa.
  std::size_t type_rows = 0;
  std::size_t width = 0;
  float epsilon = 0;
};

/// Names likewise. Without a dense layer there is no GELU either; `bias` belongs to the decoder.
struct HeadNames {
  std::string dense;
  std::string norm;
  std::string bias;
};

} // namespace trainer
