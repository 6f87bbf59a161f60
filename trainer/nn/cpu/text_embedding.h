// Where text enters: of each token the sum of three rows, of its word, its position and its type
// (the first one, of all tokens), normalised and dropped.
#pragma once

#include <span>
#include <string>

#include "trainer/nn/batch.h"
#include "trainer/nn/cpu/dropout.h"
#include "trainer/nn/cpu/layer_norm.h"
#include "trainer/nn/cpu/matrix.h"
#include "trainer/nn/text_shapes.h"

namespace trainer {

class TextEmbedding {
 public:
  /// Adds its tensors, the words' last, a unit, whose memory is what is read and written.
  TextEmbedding(const std::string& name, const EmbeddingShape& shape, const DropoutRule& rule,
                std::uint32_t site, TensorTable& tensors, const CpuKernels& kernels);

  std::size_t unit() const { return unit_; }
  /// Of the words' rows, (vocabulary, width).
  UnitMemory words(const UnitMemory& memory) const { return memory.from(words_); }
  void initialize(std::span<float> arena) const { norm_.initialize(arena); }
  void make_room(std::size_t rows, std::size_t length);

  /// Throws DataError where an id is not in the vocabulary.
  const Matrix& forward(const UnitMemory& memory, const TextPass& pass,
                        std::span<const std::int32_t> ids);
  /// `change` is used up. What the words' gradient holds is added to.
  void backward(const UnitMemory& memory, const TextPass& pass, std::span<const std::int32_t> ids,
                const Matrix& change);

 private:
  EmbeddingShape shape_;
  std::size_t unit_;
  const TransformerKernels* kernels_;
  LayerNorm norm_;
  std::size_t types_; ///< Where they lie in the unit.
  std::size_t positions_;
  std::size_t words_;
  Dropout dropout_;
  Matrix sum_; ///< (N, H): before the norm,
  Matrix x_;   ///< and behind it.
};

} // namespace trainer
