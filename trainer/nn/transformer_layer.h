// A layer of a transformer: attention within each row, and two dense layers with GELU between them;
// both parts have a residual and a norm, after the part in an encoder (BERT), before it in a
// decoder (GPT-2).
//
// Letters: N tokens of a pass, B rows of T, hidden size H in A heads, inner size F. For backward a
// layer keeps N·(10·H + 2·F) activations, and those of attention (attention_room()).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "trainer/nn/text_layers.h"
#include "trainer/nn/text_shapes.h"

namespace trainer {

/// Gradients within a layer; the layers share this memory.
struct LayerScratch {
  LayerScratch() = default;
  LayerScratch(const LayerContext& model, const LayerShape& shape, std::size_t rows,
               std::size_t length);

  Buffer wide{0};    ///< (N, H)
  Buffer wide2{0};   ///< (N, H)
  Buffer inner{0};   ///< (N, F)
  Buffer heads{0};   ///< (N, 3·H), as LayerRoom::heads
  Buffer squares{0}; ///< Scratch memory of attention, float32
};

/// Activations that backward reads. Layers that recompute them before backward share one.
struct LayerRoom {
  LayerRoom(const LayerContext& model, const LayerShape& shape, std::size_t rows,
            std::size_t length);

  Buffer heads;         ///< (N, 3·H): queries, keys and values of each token
  Buffer probabilities; ///< Of attention, float32, or what recomputes them
  Buffer context;       ///< (N, H)
  Buffer sum1;          ///< (N, H): attention with its residual
  Buffer moments1;      ///< (N, 2): means and deviations of norm1
  Buffer a;             ///< (N, H): input of the first dense layer
  Buffer u;             ///< (N, F): input of GELU
  Buffer g;             ///< (N, F): output of GELU
  Buffer wide;          ///< (N, H): before norm2 in an encoder, after norm1 in a decoder
  Buffer moments2;      ///< (N, 2)
};

class TransformerLayer {
 public:
  virtual ~TransformerLayer() = default;

  std::size_t unit() const { return unit_; }
  void make_room(std::size_t rows, std::size_t length, std::shared_ptr<LayerRoom> room);
  /// Draws what passes over these rows drop, of so many tokens each.
  void draw(const Batch& batch, std::size_t length);
  /// Initializes the gains of the norms.
  virtual void initialize(std::span<float> arena) const = 0;

  /// Returns the output for x (N, H); both must stay in place until backward.
  virtual ConstTypedPointer forward(const UnitMemory& memory, const TextPass& pass,
                                    ConstTypedPointer x) = 0;
  /// `change` (N, H): the gradient of the output; becomes that of x. Notifies `owner` of final
  /// gradients.
  virtual void backward(const UnitMemory& memory, const TextPass& pass, ConstTypedPointer x,
                        TypedPointer change, const LayerScratch& scratch,
                        ParameterOwner& owner) = 0;
  /// Notifies as backward() does.
  virtual void rehearse(ParameterOwner& owner) const = 0;

 protected:
  /// Adds a unit. `site`: the site of the first of its three dropouts.
  TransformerLayer(const LayerContext& context, const LayerShape& shape, const DropoutRule& rule,
                   std::uint32_t site, bool is_causal, TensorTable& tensors);

  AttentionShape attention(const TextPass& pass) const;
  /// Words of keep bits of a row's attention.
  std::size_t attention_words(std::size_t length) const;
  /// Pointers into queries, keys and values, (N, 3·H), or their gradients.
  Heads<TypedPointer> heads(const Buffer& of) const;
  /// The gradient before dropout of `change`: in `to` if anything was dropped, else `change`
  /// itself.
  ConstTypedPointer dropped(const Dropout& drop, const TextPass& pass, ConstTypedPointer change,
                            TypedPointer to) const;
  /// Notifies `owner` that all gradients of the unit up to here are final.
  void finish(std::size_t last, ParameterOwner& owner) const { owner.final(first_ + last); }

  const LayerContext* context_;
  LayerShape shape_;
  bool is_causal_;
  std::size_t unit_;
  std::size_t first_; ///< Offset of the unit in the arenas.
  Dropout drop0_;     ///< Dropout of attention.
  Dropout drop1_;
  Dropout drop2_;
  std::shared_ptr<LayerRoom> room_;
  Buffer y_{0}; ///< (N, H): the output.
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
