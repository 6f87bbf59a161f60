// The interface of models. A model's TensorTable lays out its parameters and gradients, and the
// model asks their owner for the memory unit by unit (nn/parameter_owner.h).
//
// A model knows batches and gradients, but no ranks. A new model is a file in this folder and a
// line in models/model.cpp.
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
  /// "mlp 784-128-10": equal for equal models.
  virtual std::string describe() const = 0;

  /// Additions and multiplications for one sample, forward and backward; 0: not known.
  virtual double flops() const { return 0; }

  /// Whether it multiplies by UnitMemory::rounded if that is there.
  virtual bool takes_rounded() const { return false; }

  /// Writes initial parameters, a function of the seed alone, into an arena in host memory that
  /// holds zeros.
  virtual void initialize(std::uint64_t seed, std::span<float> arena) const = 0;

  /// Queues on the device's stream the work that adds a batch's loss and accuracy to `*to`, in
  /// device memory. Computes no gradients.
  virtual void evaluate(const Batch& batch, ParameterOwner& owner, Score* to) = 0;

  /// The same, and the gradients of the summed loss times `*scale`, which is in device memory. With
  /// `accumulate` they are added to the owner's gradients, otherwise they overwrite them.
  void forward_backward(const Batch& batch, const float* scale, bool accumulate,
                        ParameterOwner& owner, Score* to) {
    draw(batch);
    compute(batch, scale, accumulate, owner, to);
  }
  /// Its two parts: draw() depends on the batch's place among the samples, and compute() queues the
  /// same work for all batches in the same memory.
  virtual void draw(const Batch& /*batch*/) {}
  virtual void compute(const Batch& batch, const float* scale, bool accumulate,
                       ParameterOwner& owner, Score* to) = 0;

  /// For memory plans: allocates all host memory that forward_backward() takes for a batch of this
  /// shape.
  virtual void make_room(const Batch& /*like*/) {}
  /// Calls `owner` as forward_backward() of so many rows would, but computes nothing: for memory
  /// plans, and for a rank without samples in a pass that other ranks compute. Calls `ahead` for a
  /// unit whose gradients a CPU writes from here on, although others become final first.
  virtual void rehearse(std::size_t rows, ParameterOwner& owner,
                        const std::function<void(std::size_t unit)>& ahead) const = 0;

 protected:
  /// Reports that all gradients of a unit are final and that the model is done with it; those of
  /// the next unit are written now.
  void finish(ParameterOwner& owner, std::size_t unit) const;
  /// Needs all units, from the input on; indexed by unit.
  std::vector<UnitMemory> need_all(ParameterOwner& owner) const;
};

/// The shape of a transformer for text; the vocabulary comes from the data.
struct TransformerOptions {
  std::size_t layers = 6;
  std::size_t hidden = 256; ///< Hidden size.
  std::size_t heads = 8;
  std::size_t inner = 512; ///< Width between the two dense layers of a block (ff).
  std::size_t max_length = 512;
  std::size_t vocabulary = 0;
  double dropout = 0.1;
  double norm_epsilon = 1e-12;
  bool recompute = false; ///< Recompute activations of layers in backward instead of keeping all.
};

struct ModelOptions {
  std::string name = "mlp";
  std::size_t height = 28; ///< Height of an image.
  std::size_t width = 28;
  std::size_t classes = 10;
  std::vector<std::size_t> hidden = {128}; ///< Widths of the fully connected hidden layers.
  TransformerOptions transformer = {};
  std::uint64_t seed = 0; ///< Seed of dropout.

  bool is_of_text() const { return name == "bert" || name == "roberta" || is_causal(); }
  /// Whether it learns to predict the next token, at every position.
  bool is_causal() const { return name == "gpt2"; }
};

/// "512,256", or "6x256 heads=8 ff=512 …": all options of a model's shape.
std::string shape_text(const ModelOptions& options);

/// Throws UsageError for an unknown name.
std::unique_ptr<Model> make_model(const ModelOptions& options, Device& device);

} // namespace trainer
