// A layer of a transformer: attention of each token to its row's, and two dense layers with GELU
// between them, each with a residual and a norm: behind it in an encoder's (BERT), before it in a
// decoder's (GPT-2).
//
// Letters: N tokens of a pass, B rows of T, H wide in A heads, F within. A pass keeps
// N·(10·H + 2·F) activations of a layer for backward, and what attention keeps (attention_room()).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "trainer/nn/text_layers.h"
#include "trainer/nn/text_shapes.h"

namespace trainer {

/// What layers share, each while its turn lasts: gradients on their way.
struct LayerScratch {
  LayerScratch() = default;
  LayerScratch(const LayerContext& model, const LayerShape& shape, std::size_t rows,
               std::size_t length);

  Buffer wide{0};    ///< (N, H)
  Buffer wide2{0};   ///< (N, H)
  Buffer inner{0};   ///< (N, F)
  Buffer heads{0};   ///< (N, 3·H), as of a room
  Buffer squares{0}; ///< Attention's room, of float32
};

/// What backward reads again of forward. Layers whose forward is done again before their backward
/// share one.
struct LayerRoom {
  LayerRoom(const LayerContext& model, const LayerShape& shape, std::size_t rows,
            std::size_t length);

  Buffer heads;         ///< (N, 3·H): a token's queries, its keys and its values
  Buffer probabilities; ///< Attention's, of float32, or what it makes them of again
  Buffer context;       ///< (N, H)
  Buffer sum1;          ///< (N, H): attention's, with its residual,
  Buffer moments1;      ///< (N, 2): means and deviations of what norm1 was of,
  Buffer a;             ///< (N, H): and what the first dense layer is of.
  Buffer u;             ///< (N, F): before GELU,
  Buffer g;             ///< and behind it.
  Buffer wide;          ///< (N, H): an encoder's before norm2, a decoder's behind norm1.
  Buffer moments2;      ///< (N, 2)
};

class TransformerLayer {
 public:
  virtual ~TransformerLayer() = default;

  std::size_t unit() const { return unit_; }
  void make_room(std::size_t rows, std::size_t length, std::shared_ptr<LayerRoom> room);
  /// The norms' gains.
  virtual void initialize(std::span<float> arena) const = 0;

  /// Of x (N, H), which stays where it is until backward; its output, which does too.
  virtual ConstTypedPointer forward(const UnitMemory& memory, const TextPass& pass,
                                    ConstTypedPointer x) = 0;
  /// `change` (N, H): the gradient of what forward() gave; becomes that of x. Tells `owner` what is
  /// final.
  virtual void backward(const UnitMemory& memory, const TextPass& pass, ConstTypedPointer x,
                        TypedPointer change, const LayerScratch& scratch,
                        ParameterOwner& owner) = 0;
  /// Tells what backward() does.
  virtual void rehearse(ParameterOwner& owner) const = 0;

 protected:
  /// Adds a unit. `site`: of the first of its three dropouts.
  TransformerLayer(const LayerContext& context, const LayerShape& shape, const DropoutRule& rule,
                   std::uint32_t site, bool is_causal, TensorTable& tensors);

  AttentionShape attention(const TextPass& pass) const;
  /// Of queries, keys and values, (N, 3·H), or their gradients.
  Heads<TypedPointer> heads(const Buffer& of) const;
  void draw(const TextPass& pass);
  /// `change` as it is before what was dropped, in `to` where anything was.
  ConstTypedPointer dropped(const Dropout& drop, std::size_t values, ConstTypedPointer change,
                            TypedPointer to) const;
  /// All of the unit's gradients up to there are final.
  void finish(std::size_t last, ParameterOwner& owner) const { owner.final(first_ + last); }

  const LayerContext* context_;
  LayerShape shape_;
  bool is_causal_;
  std::size_t unit_;
  std::size_t first_; ///< Of it in the arenas.
  Dropout drop0_;     ///< Of attention.
  Dropout drop1_;
  Dropout drop2_;
  std::shared_ptr<LayerRoom> room_;
  Buffer y_{0}; ///< (N, H): what it gives.
};

/// `name`: "bert.encoder.layer.3".
std::unique_ptr<TransformerLayer>
make_encoder_layer(const LayerContext& context, const std::string& name, const LayerShape& shape,
                   const DropoutRule& rule, std::uint32_t site, TensorTable& tensors);
/// `name`: "transformer.h.3".
std::unique_ptr<TransformerLayer>
make_decoder_layer(const LayerContext& context, const std::string& name, const LayerShape& shape,
                   const DropoutRule& rule, std::uint32_t site, TensorTable& tensors);

} // namespace trainer
