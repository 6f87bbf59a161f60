// The kernels that every device has: those of optimizers, gradient norms and input, which work on
// flat ranges, and those of layers (of text models: text_kernels.h). Each is queued on the stream
// that it is given.
#pragma once

#include <cstddef>
#include <cstdint>

#include "trainer/data/permutation.h"
#include "trainer/device/buffer.h"
#include "trainer/device/matmul.h"
#include "trainer/device/step_state.h"
#include "trainer/device/text_kernels.h"
#include "trainer/on_both.h"

namespace trainer {

class Stream;

/// How an optimizer updates a group of parameters, the same in every step; what changes from step
/// to step is in StepState. For each value, where `g` is its gradient times the state's factor:
///
///   sgd    g += l2·p;  m = β1·m + g;  p -= step_size·m
///   adam   g += l2·p;  p *= 1 - rate·decay;  m = β1·m + (1-β1)·g;  v = β2·v + (1-β2)·g²;
///          p -= step_size·m / (sqrt(v)·inverse_correction2 + ε)
///   lamb   m and v as adam's;  u = step_size·m / (sqrt(v)·inverse_correction2 + ε) + decay·p;
///          p -= rate·ratio·u,  ratio = |p| / |u| over the tensor, 1 where either is 0
struct UpdateRule {
  float beta1 = 0.9F;
  float beta2 = 0.999F;
  float epsilon = 1e-8F;
  float l2 = 0;
  double decay = 0; ///< Decoupled weight decay.
};

/// The parameters to update, and their copy in bf16, written in the same pass; null: no copy.
struct Parameters {
  float* values;
  Bf16Value* rounded = nullptr;

  // NOLINTNEXTLINE(google-explicit-constructor): most have no copy.
  DTRAIN_ON_BOTH constexpr Parameters(float* values_, Bf16Value* rounded_ = nullptr)
      : values(values_), rounded(rounded_) {}
};

/// The factor by which Adam and Muon multiply parameters for decoupled weight decay.
DTRAIN_ON_BOTH static inline float shrink_of(const UpdateRule& rule, const StepState& state) {
  return static_cast<float>(1 - state.learning_rate * rule.decay);
}

/// The factor of normalise().
DTRAIN_ON_BOTH static inline float inverse_norm(double squares) {
  constexpr double k_least = 1e-7;
  const double norm = sqrt(squares);
  return static_cast<float>(1 / (norm < k_least ? k_least : norm));
}

/// Loss and accuracy of a batch.
struct Score {
  double loss = 0; ///< Sum over samples.
  std::int64_t correct = 0;
  std::int64_t count = 0;

  Score& operator+=(const Score& other) {
    loss += other.loss;
    correct += other.correct;
    count += other.count;
    return *this;
  }
};

/// Label number `sample` of an array of labels of this type.
DTRAIN_ON_BOTH static inline std::int32_t label_at(const void* labels, DType type,
                                                   std::uint64_t sample) {
  return type == DType::u8    ? static_cast<const std::uint8_t*>(labels)[sample]
         : type == DType::i16 ? static_cast<const std::int16_t*>(labels)[sample]
                              : static_cast<const std::int32_t*>(labels)[sample];
}

/// Gathers a batch from the samples kept on the device: `rows` of them in `order`, from number
/// `first` on, divided by 255.
struct Gathering {
  Permutation order = {};
  std::uint64_t first = 0;
  std::size_t rows = 0;
  std::size_t features = 0;             ///< Bytes of a sample.
  const std::uint8_t* images = nullptr; ///< Images of all samples,
  const void* labels = nullptr;         ///< and their labels,
  DType label_type = DType::u8;         ///< u8, i16 or i32.
  float* to = nullptr;
  std::int32_t* to_labels = nullptr;
};

/// A 3 × 3 convolution with padding, followed by 2 × 2 max-pooling; an odd last row or column is in
/// no pool. Letters: N images of H × W pixels, P pools an image, C input and O output channels.
struct ConvolutionShape {
  std::size_t images;
  std::size_t height;
  std::size_t width;
  std::size_t channels;
  std::size_t outputs;

  DTRAIN_ON_BOTH constexpr std::size_t pools() const { return height / 2 * (width / 2); }
  DTRAIN_ON_BOTH constexpr std::size_t pooled_pixels() const { return 4 * images * pools(); }
  /// The gradient of the weight is summed in parts, enough to keep a GPU busy: pixels of a part,
  /// number of parts, and floats that the partial sums take.
  DTRAIN_ON_BOTH constexpr std::size_t pixels_a_part() const {
    constexpr std::size_t k_least = 256;
    constexpr std::size_t k_most_parts = 512;
    const std::size_t pixels = (pooled_pixels() + k_most_parts - 1) / k_most_parts;
    return pixels < k_least ? k_least : (pixels + 15) / 16 * 16;
  }
  constexpr std::size_t parts() const {
    return (pooled_pixels() + pixels_a_part() - 1) / pixels_a_part();
  }
  constexpr std::size_t room() const { return parts() * 9 * channels * outputs; }
};

/// Largest number of classes of LayerKernels::score().
inline constexpr std::size_t k_most_scored = 32;

/// Whether LayerKernels::weight_gradients() is faster than a product by itself.
constexpr bool is_small(const DenseShape& shape) {
  constexpr std::size_t k_rows = 128;
  constexpr std::size_t k_values = std::size_t{1} << 19;
  return shape.rows <= k_rows && shape.inputs * shape.outputs <= k_values;
}

/// Layers that are more than a matrix product. All arrays are row-major.
struct LayerKernels {
  /// Given logits (B, C): change (B, C) = (softmax - onehot) · `*scale`; `change` may be the memory
  /// of the logits; null: no gradient. Adds to `*score`.
  void (*softmax_cross_entropy)(Stream&, std::size_t rows, std::size_t classes, const float* logits,
                                const std::int32_t* labels, const float* scale, float* change,
                                Score* score);
  /// The same for the logits x · weightᵀ + bias of a layer of at most k_most_scored outputs; and
  /// dx = change · weight, 0 where x ≤ 0; null: no dx.
  void (*score)(Stream&, const DenseShape& shape, const float* x, const float* weight,
                const float* bias, const std::int32_t* labels, const float* scale, float* change,
                float* dx, Score* score);
  /// `count` products of DenseShape::backward_weight(), with biases, of small shapes; none reads
  /// what another writes.
  void (*weight_gradients)(Stream&, std::size_t count, const Matmul* products);

  /// y (N, P, O) = relu(max over each pool of x (N, H, W, C) * weight (O, 3, 3, C) + bias (O)).
  /// `chosen` (N, P, O): which of the four values was the largest; 4 where y is 0.
  void (*convolution)(Stream&, const ConvolutionShape& shape, const float* x, const float* weight,
                      const float* bias, float* y, std::uint8_t* chosen);
  /// dy (N, P, O) → dweight (O, 3, 3, C) and dbias (O), or += with `accumulate`. `room` is scratch
  /// memory of shape.room() floats.
  void (*convolution_backward_weight)(Stream&, const ConvolutionShape& shape, const float* x,
                                      const float* dy, const std::uint8_t* chosen, bool accumulate,
                                      float* room, float* dweight, float* dbias);
  /// dx (N, H, W, C)
  void (*convolution_backward_input)(Stream&, const ConvolutionShape& shape, const float* dy,
                                     const std::uint8_t* chosen, const float* weight, float* dx);
};

struct Kernels {
  const char* name;
  const char* arithmetic; ///< Kernels with the same arithmetic give the same bits.

  /// Update the state of a step (step_state.h), in one thread: begin() from what the host knows
  /// before the step, prepare() from the sum of squares of the gradients. begin() also gathers a
  /// batch unless `gathering` is null; prepare() also copies the state to `*told` in host memory
  /// unless that is null.
  void (*begin)(Stream&, const StepRule& rule, const StepInput& input, StepState* state,
                const Gathering* gathering);
  void (*prepare)(Stream&, const StepRule& rule, const SquareSum* squares, StepState* state,
                  StepState* told);

  /// A single pass: adam reads 16 bytes and writes 12 a value, and 2 more with a copy.
  void (*sgd)(Stream&, std::size_t n, const UpdateRule& rule, const StepState* state,
              const float* gradient, float* m, const Parameters& parameters);
  void (*adam)(Stream&, std::size_t n, const UpdateRule& rule, const StepState* state,
               const float* gradient, float* m, float* v, const Parameters& parameters);

  // The parts of LAMB: the direction u of some values, which may be the memory of the gradient, and
  // the step of a whole tensor.
  void (*lamb_direction)(Stream&, std::size_t n, const UpdateRule& rule, const StepState* state,
                         const float* gradient, float* m, float* v, float* u,
                         const float* parameters);
  void (*lamb_take)(Stream&, std::size_t n, const StepState* state, const float* u,
                    const Parameters& parameters);

  // The parts of Muon (optim/muon.h), likewise.
  void (*muon_direction)(Stream&, std::size_t n, const UpdateRule& rule, const StepState* state,
                         const float* gradient, float* m, float* u);
  void (*muon_take)(Stream&, std::size_t n, const UpdateRule& rule, const StepState* state,
                    float ratio, const float* u, const Parameters& parameters);
  /// x /= max(sqrt(squares->sum), 1e-7)
  void (*normalise)(Stream&, std::size_t n, const SquareSum* squares, float* x);
  /// y = a·x + b·y
  void (*blend)(Stream&, std::size_t n, float a, const float* x, float b, float* y);

  void (*matmul)(Stream&, const Matmul& matmul);

  /// *to = the sum of squares, in float64, of n values from this place of an arena on.
  void (*squares)(Stream&, std::size_t n, const float* values, std::size_t place, SquareSum* to);
  /// *to = from[0] + from[stride] + …, n of them, in this order.
  void (*sum)(Stream&, std::size_t n, std::size_t stride, const SquareSum* from, SquareSum* to);

  /// to = from / 255
  void (*bytes_to_floats)(Stream&, std::size_t n, const std::uint8_t* from, float* to);
  /// The same for a batch of samples, and copies their labels.
  void (*gather)(Stream&, const Gathering& gathering);

  /// Convert between float32 and bf16 or f16, rounded as in halves.h.
  void (*narrow)(Stream&, std::size_t n, DType type, const float* from, void* to);
  void (*widen)(Stream&, std::size_t n, DType type, const void* from, float* to);

  const LayerKernels* layers;
  const TextKernels* text;
};

} // namespace trainer
