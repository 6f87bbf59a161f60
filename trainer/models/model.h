// What can be trained: a model over two flat arenas, parameters and gradients, that lie as its
// TensorTable says.
//
// The arenas are in the order in which backward finishes gradients, so what is final is always a
// prefix, and a bucket always a contiguous piece. A unit is a contiguous range of them that is used
// together: a layer. Who owns memory, moves parameters or sums gradients hooks into a pass:
//
//   need(unit)    its parameters are about to be read, by forward or backward
//   done(unit)    they are not read again until the next need(unit)
//   final(count)  the first `count` gradients will not change any more
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
#include "trainer/nn/tensor_table.h"

namespace trainer {

struct Unit {
  std::string name;
  std::size_t first = 0; ///< In the arenas.
  std::size_t last = 0;
};

struct Hooks {
  std::function<void(std::size_t unit)> need;
  std::function<void(std::size_t unit)> done;
  std::function<void(std::size_t count)> final;
  /// Floats: final() is called each time so many more are final, as nearly as the model can tell
  /// within a unit, and at each unit's end.
  std::size_t granularity = SIZE_MAX;
};

class Model {
 public:
  virtual ~Model() = default;

  virtual const TensorTable& tensors() const = 0;
  /// In the order of the arenas, which they fill.
  virtual const std::vector<Unit>& units() const = 0;
  /// "mlp 784-128-10": alike where models are.
  virtual std::string describe() const = 0;

  /// Additions and multiplications that a sample takes, forward and backward; 0: not known.
  virtual double flops() const { return 0; }

  /// Uses these arenas, of tensors().arena_size() floats of the device's; they must outlive the
  /// model.
  virtual void bind(std::span<float> parameters, std::span<float> gradients) = 0;
  /// Parameters to begin with, a function of the seed alone.
  virtual void initialize(std::uint64_t seed) = 0;

  /// Puts on the device's stream: what adds a batch's loss and accuracy to `*to`, which is in the
  /// device's memory; no gradients. Of `hooks` it tells which units it needs, not all that are
  /// done.
  virtual void evaluate(const Batch& batch, const Hooks& hooks, Score* to) = 0;

  /// The same, and the gradient of `*scale`, in the device's memory, times the summed loss, added
  /// to what the arena holds with `accumulate`, else written over it.
  virtual void forward_backward(const Batch& batch, const float* scale, bool accumulate,
                                const Hooks& hooks, Score* to) = 0;

  /// For plans: makes all the room on the host that forward_backward() takes for a batch like this
  /// one, of which only the numbers count.
  virtual void make_room(const Batch& /*like*/) {}
  /// Likewise: tells what forward_backward() of so many rows tells, and computes nothing. `ahead`:
  /// the gradients of this unit are written from here on, before they are next to be final.
  /// By itself: needs all units from the start, and finishes one after the other.
  virtual void rehearse(std::size_t rows, const Hooks& hooks,
                        const std::function<void(std::size_t unit)>& ahead) const;

 protected:
  /// From the input on.
  void need_all(const Hooks& hooks) const;
};

/// Of a transformer for text; the data say the vocabulary.
struct BertOptions {
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
  BertOptions bert = {};
  std::uint64_t seed = 0; ///< Of what is drawn while it trains.

  bool is_of_text() const { return name == "bert" || name == "roberta"; }
};

/// "512,256", or "6x256 heads=8 ff=512 …": all that makes one model of a name another.
std::string shape_text(const ModelOptions& options);

/// Throws UsageError for a name that is no model.
std::unique_ptr<Model> make_model(const ModelOptions& options, Device& device);

} // namespace trainer
