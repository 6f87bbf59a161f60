// The multilayer perceptron: inputs → hidden (ReLU) → classes, with softmax cross-entropy.
//
// It knows of batches and gradients, nothing of ranks. Parameters lie in one arena, gradients in
// another of the same layout, in the order in which backward finishes them:
//
//   [ output bias | output weight | hidden bias | hidden weight, panel by panel ]
//
// so "ready" is always a prefix, and a bucket always a contiguous piece.
//
// A batch is worked through in slices of 64 rows, forward and backward, adding up gradients: a
// slice's activations and its images stay in a core's caches from the first product to the last.
//
// Letters: B rows of a slice, I inputs, H hidden (whole panels), C = 16: one panel that holds the
// classes. Cost of a step: 6·B·(I·H + H·C) FLOP less the 2·B·I·H that the input's gradient would
// take.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "trainer/data/loader.h"
#include "trainer/device/buffer.h"
#include "trainer/nn/dense.h"
#include "trainer/nn/named_tensor.h"

namespace trainer {

struct MlpShape {
  std::size_t inputs = 784;
  std::size_t hidden = 128;
  std::size_t classes = 10;
};

/// Told how many floats of the gradient arena, from its start, are final.
using GradientsReady = std::function<void(std::size_t count)>;

class Mlp {
 public:
  /// Throws UsageError where hidden is not a multiple of 16 or there are more than 16 classes.
  Mlp(const MlpShape& shape, const CpuKernels& kernels);

  /// Floats in each arena, padding included.
  std::size_t parameter_count() const;

  /// Uses these arenas; they must outlive the model.
  void bind(std::span<float> parameters, std::span<float> gradients);
  void initialize(std::uint64_t seed);

  /// Loss and accuracy of a batch, no gradients.
  Score evaluate(const Batch& batch);

  /// Loss, accuracy, and the gradient of `scale` times the summed loss, written over the old one.
  /// `ready` is called each time at least `granularity` floats more are final, and at the end.
  Score forward_backward(const Batch& batch, float scale, std::size_t granularity,
                         const GradientsReady& ready);

  /// An arena's content (parameters, or moments in the same layout) by name, and back.
  std::vector<NamedTensor> export_arena(std::span<const float> arena) const;
  void import_arena(const std::vector<NamedTensor>& tensors, std::span<float> arena) const;

 private:
  void forward(const Batch& slice);
  /// Adds to the gradients, or with `first` overwrites them; `done` follows each run of `step`
  /// panels of the hidden weight.
  void backward(const Batch& slice, bool first, std::size_t step,
                const std::function<void(std::size_t panels)>& done);

  const CpuKernels* kernels_;
  Dense hidden_;
  Dense output_;
  Buffer activation_;      ///< (B, H)
  Buffer hidden_gradient_; ///< (H / 16, B, 16)
  Buffer logits_;          ///< (B, C), then their gradient
  Buffer scratch_;         ///< Wᵀ of the output layer
  Buffer unused_;          ///< Bias gradient of evaluate().
};

} // namespace trainer
