// The shapes and names of what BERT is made of, whatever computes it.
#pragma once

#include <cstddef>
#include <string>

namespace trainer {

struct EncoderShape {
  std::size_t width = 0; ///< H
  std::size_t heads = 0;
  std::size_t inner = 0; ///< F
  float epsilon = 0;     ///< The norms'.
};

struct EmbeddingShape {
  std::size_t vocabulary = 0;
  std::size_t positions = 0;
  std::size_t first_position = 0; ///< The row of a text's first token: RoBERTa's begin at 2.
  std::size_t types = 0;
  std::size_t width = 0;
  float epsilon = 0;
};

/// The tensors' names, which BERT and RoBERTa have each their own of.
struct HeadNames {
  std::string dense;
  std::string norm;
  std::string bias;
};

} // namespace trainer
