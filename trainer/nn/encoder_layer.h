// A layer of BERT: attention of each token to all of its row, and two dense layers with GELU
// between them, each with a residual and a norm behind it.
//
// Letters: N tokens of a pass, B rows of T, H wide in A heads, F within. A pass keeps
// N·(10·H + 2·F) + B·A·T² floats of a layer for backward.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "trainer/nn/text_layers.h"
#include "trainer/nn/text_shapes.h"

namespace trainer {

/// What layers share, each while its turn lasts: gradients on their way.
struct EncoderScratch {
  EncoderScratch() = default;
  EncoderScratch(Device& device, const EncoderShape& shape, std::size_t rows, std::size_t length);

  Buffer wide{0};  ///< (N, H)
  Buffer wide2{0}; ///< (N, H)
  Buffer inner{0}; ///< (N, F)
  Buffer query{0}; ///< (N, H), and so
  Buffer key{0};
  Buffer value{0};
  Buffer squares{0}; ///< (B, A, T, T)
};

/// What backward reads again of forward. Layers whose forward is done again before their backward
/// share one.
struct EncoderRoom {
  EncoderRoom(Device& device, const EncoderShape& shape, std::size_t rows, std::size_t length);

  Buffer query; ///< (N, H), and so
  Buffer key;
  Buffer value;
  Buffer probabilities; ///< (B, A, T, T)
  Buffer context;       ///< (N, H)
  Buffer sum1;          ///< (N, H): before norm1,
  Buffer moments1;      ///< (N, 2): its rows' means and deviations,
  Buffer a;             ///< (N, H): and behind it.
  Buffer u;             ///< (N, F): before GELU,
  Buffer g;             ///< and behind it.
  Buffer sum2;          ///< (N, H): before norm2.
  Buffer moments2;      ///< (N, 2)
};

class EncoderLayer {
 public:
  /// Adds its tensors, in the order in which backward finishes them, a unit, whose memory is what
  /// is read and written. `site`: of the first of its three dropouts.
  EncoderLayer(const LayerContext& context, const std::string& name, const EncoderShape& shape,
               const DropoutRule& rule, std::uint32_t site, TensorTable& tensors);

  std::size_t unit() const { return unit_; }
  /// The norms' gains.
  void initialize(std::span<float> arena) const;
  void make_room(std::size_t rows, std::size_t length, std::shared_ptr<EncoderRoom> room);

  /// Of x (N, H), which stays where it is until backward; its output, which does too.
  const float* forward(const UnitMemory& memory, const TextPass& pass, const float* x);
  /// `change` (N, H): the gradient of what forward() gave; becomes that of x. Tells `owner` what is
  /// final.
  void backward(const UnitMemory& memory, const TextPass& pass, const float* x, float* change,
                const EncoderScratch& scratch, ParameterOwner& owner);
  /// Tells what backward() does.
  void rehearse(ParameterOwner& owner) const;

 private:
  AttentionShape attention(const TextPass& pass) const;
  /// `change` as it is before what was dropped, in `to` where anything was.
  const float* dropped(const Dropout& drop, std::size_t values, const float* change,
                       float* to) const;
  void finish(const Linear& layer, ParameterOwner& owner) const {
    owner.final(first_ + layer.last());
  }

  const LayerContext* context_;
  EncoderShape shape_;
  std::size_t unit_;
  std::size_t first_; ///< Of it in the arenas.
  LayerNorm norm2_;   ///< In the order of the arenas.
  Linear out_;
  Linear in_;
  LayerNorm norm1_;
  Linear mix_; ///< Of the heads' contexts.
  Linear value_;
  Linear key_;
  Linear query_;
  Dropout drop0_; ///< Of attention.
  Dropout drop1_;
  Dropout drop2_;
  std::shared_ptr<EncoderRoom> room_;
  Buffer y_{0}; ///< (N, H): behind norm2.
};

} // namespace trainer
