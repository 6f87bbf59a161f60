// What can be trained: a model whose parameters and gradients lie as its TensorTable says, in
// memory that it asks their owner for unit by unit (nn/parameter_owner.h).
//
// A model knows of batches and gradients, nothing of ranks. A new one is a file in this folder and
// a line in models/model.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trainer/device/device.h"
#include "trainer/nn/batch.h"
#include "trainer/nn/parameter_owner.h"
#include "trainer/nn/tensor_table.h"

namespace trainer {

class Model {
 public:
  virtual ~Model() = default;

  virtual const TensorTable& tensors() const = 0;
  const std::vector<ArenaRange>& units() const { return tensors().units(); }
  /// "mlp 784-128-10": alike where models are.
  virtual std::string describe() const = 0;

  /// Additions and multiplications that a sample takes, forward and backward; 0: not known.
  virtual double flops() const { return 0; }

  /// Whether it multiplies by UnitMemory::rounded where there is one.
  virtual bool takes_rounded() const { return false; }

  /// Parameters to begin with, a function of the seed alone, into an arena of the host's that
  /// holds zeros.
  virtual void initialize(std::uint64_t seed, std::span<float> arena) const = 0;

  /// Puts on the device's stream: what adds a batch's loss and accuracy to `*to`, which is in the
  /// device's memory; no gradients.
  virtual void evaluate(const Batch& batch, ParameterOwner& owner, Score* to) = 0;

  /// The same, and the gradient of `*scale`, in the device's memory, times the summed loss, added
  /// to what the owner's memory holds with `accumulate`, else written over it.
  virtual void forward_backward(const Batch& batch, const float* scale, bool accumulate,
                                ParameterOwner& owner, Score* to) = 0;

  /// For plans: makes all the room on the host that forward_backward() takes for a batch like this
  /// one, of which only the numbers count.
  virtual void make_room(const Batch& /*like*/) {}
  /// Calls `owner` as forward_backward() of so many rows does, and computes nothing: for
  /// plans, and for a rank that has nothing to compute in a pass of the others'. `ahead`: the
  /// gradients of this unit are written from here on by a CPU, before they are next to be final.
  virtual void rehearse(std::size_t rows, ParameterOwner& owner,
                        const std::function<void(std::size_t unit)>& ahead) const = 0;

 protected:
  /// All gradients of a unit are final, and it is done with; those of the next are written now.
  void finish(ParameterOwner& owner, std::size_t unit) const;
  /// From the input on; by their numbers.
  std::vector<UnitMemory> need_all(ParameterOwner& owner) const;
};

/// Of a transformer for text; the data say the vocabulary.
struct TransformerOptions {
  std::size_t layers = 6;
  std::size_t hidden = 256; ///< How wide it is.
  std::size_t heads = 8;
  std::size_t inner = 512; ///< Width within a layer, between its two dense ones.
  std::size_t max_length = 512;
  std::size_t vocabulary = 0;
  double dropout = 0.1;
  double norm_epsilon = 1e-12;
  bool recompute = false; ///< Layers' activations, in backward, instead of keeping them all.
};

struct ModelOptions {
  std::string name = "mlp";
  std::size_t height = 28; ///< Of an image.
  std::size_t width = 28;
  std::size_t classes = 10;
  std::vector<std::size_t> hidden = {128}; ///< Widths of the fully connected hidden layers.
  TransformerOptions transformer = {};
  std::uint64_t seed = 0; ///< Of what is drawn while it trains.

  bool is_of_text() const { return name == "bert" || name == "roberta" || is_causal(); }
  /// It learns the token that comes next, of all.
  bool is_causal() const { return name == "gpt2"; }
};

/// "512,256", or "6x256 heads=8 ff=512 …": all that makes one model of a name another.
std::string shape_text(const ModelOptions& options);

/// Throws UsageError for a name that is no model.
std::unique_ptr<Model> make_model(const ModelOptions& options, Device& device);

} // namespace trainer
