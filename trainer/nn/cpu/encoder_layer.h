// A layer of BERT's encoder: attention, then two dense layers with GELU between them, each with
// dropout, what came in added, and normalised.
//
//   a = norm1(x + drop(attention(x)·out + b)),   y = norm2(a + drop(gelu(a·in + b)·out + b))
//
// Letters: N tokens of a pass, H wide, F within. Cost a pass: 24·N·H² + 12·N·H·F FLOP, a third of
// it forward, and attention's. A pass keeps N·(9·H + 2·F) floats of a layer for backward, and
// attention's.
#pragma once

#include <memory>
#include <string>

#include "trainer/nn/cpu/attention.h"
#include "trainer/nn/cpu/layer_norm.h"
#include "trainer/nn/cpu/linear.h"
#include "trainer/nn/text_shapes.h"

namespace trainer {

/// What layers share, each while its turn lasts: gradients on their way.
struct EncoderScratch {
  Matrix wide;      ///< (N, H)
  Matrix wide2;     ///< (N, H)
  Matrix inner;     ///< (N, F)
  Matrix qkv;       ///< (N, 3·H)
  Buffer weight{0}; ///< (H, F) or (H, H): one, transposed.
};

/// What backward reads again of forward. Layers whose forward is done again before their backward
/// share one.
struct EncoderRoom {
  EncoderRoom(const EncoderShape& shape, std::size_t rows, std::size_t length);

  Matrix qkv;     ///< (N, 3·H)
  Matrix context; ///< (N, H)
  Matrix sum1;    ///< (N, H): before norm1,
  Matrix a;       ///< and behind it.
  Matrix u;       ///< (N, F): before GELU,
  Matrix g;       ///< and behind it.
  Matrix sum2;    ///< (N, H): before norm2.
  AttentionRoom attention;
};

class EncoderLayer {
 public:
  /// Adds its tensors, in the order in which backward finishes them, a unit, whose memory is what
  /// is read and written. `site`: of the first of its three dropouts.
  EncoderLayer(const std::string& name, const EncoderShape& shape, const DropoutRule& rule,
               std::uint32_t site, TensorTable& tensors, const CpuKernels& kernels);

  std::size_t unit() const { return unit_; }
  /// The norms' gains; the weights are the model's to draw.
  void initialize(std::span<float> arena) const;
  void make_room(std::size_t rows, std::size_t length, std::shared_ptr<EncoderRoom> room);

  /// Of x (N, H), which stays where it is until backward.
  const Matrix& forward(const UnitMemory& memory, const TextPass& pass, const Matrix& x);
  /// `change`: the gradient of what forward() gave; becomes that of x. Tells `owner` what is final.
  void backward(const UnitMemory& memory, const TextPass& pass, const Matrix& x,
                const Matrix& change, const EncoderScratch& scratch, ParameterOwner& owner);
  /// Tells what backward() does.
  void rehearse(ParameterOwner& owner) const;

 private:
  void finish(const Linear& layer, ParameterOwner& owner) const {
    owner.final(first_ + layer.last());
  }

  EncoderShape shape_;
  std::size_t unit_;
  std::size_t first_; ///< Of it in the arenas.
  const CpuKernels* kernels_;
  LayerNorm norm2_; ///< In the order of the arenas.
  Linear out_;
  Linear in_;
  LayerNorm norm1_;
  Linear mix_; ///< Of the heads' contexts.
  Linear value_;
  Linear key_;
  Linear query_;
  Attention attention_;
  Dropout drop1_;
  Dropout drop2_;
  std::shared_ptr<EncoderRoom> room_;
  Matrix y_; ///< (N, H): behind norm2.
};

} // namespace trainer
