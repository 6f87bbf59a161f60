// The kernels that every device has: what optimizers, the norm of gradients and input are made of,
// which work on flat ranges, and layers (of models of text: text_kernels.h). All work in the stream
// that they are given.
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

/// What an optimizer does to a group of parameters, the same in every step; what is a step's own is
/// in its state. As each value sees it, where `g` is its gradient times the state's factor:
///
///   sgd    g += l2·p;  m = β1·m + g;  p -= step_size·m
///   adam   p *= 1 - rate·decay;  g += l2·p;  m = β1·m + (1-β1)·g;  v = β2·v + (1-β2)·g²;
///          p -= step_size·m / (sqrt(v)·inverse_correction2 + ε)
///   lamb   m and v as adam's;  u = step_size·m / (sqrt(v)·inverse_correction2 + ε) + decay·p;
///          p -= rate·ratio·u,  ratio = |p| / |u| over the tensor, 1 where either is 0
struct UpdateRule {
  float beta1 = 0.9F;
  float beta2 = 0.999F;
  float epsilon = 1e-8F;
  float l2 = 0;
  double decay = 0; ///< Beside the gradient.
};

/// What an optimizer updates, and its copy in bf16, which is written in the same pass; null: none.
struct Parameters {
  float* values;
  Bf16Value* rounded = nullptr;

  // NOLINTNEXTLINE(google-explicit-constructor): most have no copy.
  DTRAIN_ON_BOTH constexpr Parameters(float* values_, Bf16Value* rounded_ = nullptr)
      : values(values_), rounded(rounded_) {}
};

/// What adam multiplies parameters by, and Muon.
DTRAIN_ON_BOTH static inline float shrink_of(const UpdateRule& rule, const StepState& state) {
  return static_cast<float>(1 - state.learning_rate * rule.decay);
}

/// What normalise() multiplies by.
DTRAIN_ON_BOTH static inline float inverse_norm(double squares) {
  constexpr double k_least = 1e-7;
  const double norm = sqrt(squares);
  return static_cast<float>(1 / (norm < k_least ? k_least : norm));
}

/// What a batch scored.
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

/// Label number `sample` of those that are kept as such a type.
DTRAIN_ON_BOTH static inline std::int32_t label_at(const void* labels, DType type,
                                                   std::uint64_t sample) {
  return type == DType::u8    ? static_cast<const std::uint8_t*>(labels)[sample]
         : type == DType::i16 ? static_cast<const std::int16_t*>(labels)[sample]
                              : static_cast<const std::int32_t*>(labels)[sample];
}

/// So many samples that a device keeps: those that `order` has from number `first` on, to / 255.
struct Gathering {
  Permutation order = {};
  std::uint64_t first = 0;
  std::size_t rows = 0;
  std::size_t features = 0;             ///< Bytes of a sample.
  const std::uint8_t* images = nullptr; ///< Of all samples,
  const void* labels = nullptr;         ///< and these,
  DType label_type = DType::u8;         ///< u8, i16 or i32.
  float* to = nullptr;
  std::int32_t* to_labels = nullptr;
};

/// Of a convolution of 3 × 3 pixels, as many pixels out as in, of which 2 × 2 max-pooling takes a
/// quarter; an odd row or column is in no pool. Letters: N images of H × W pixels, P pools an
/// image, C channels in, O out.
struct ConvolutionShape {
  std::size_t images;
  std::size_t height;
  std::size_t width;
  std::size_t channels;
  std::size_t outputs;

  DTRAIN_ON_BOTH constexpr std::size_t pools() const { return height / 2 * (width / 2); }
  DTRAIN_ON_BOTH constexpr std::size_t pooled_pixels() const { return 4 * images * pools(); }
  /// Pixels of a part in which the weight's gradient is added up, those parts, which keep a GPU
  /// busy, and the floats that they take.
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

/// Classes that LayerKernels::score() has room for.
inline constexpr std::size_t k_most_scored = 32;

/// Whether it is faster by LayerKernels::weight_gradients() than as a product by itself.
constexpr bool is_small(const DenseShape& shape) {
  constexpr std::size_t k_rows = 128;
  constexpr std::size_t k_values = std::size_t{1} << 19;
  return shape.rows <= k_rows && shape.inputs * shape.outputs <= k_values;
}

/// Layers beside those that are a product alone, of which all is row-major.
struct LayerKernels {
  /// Of logits (B, C): change (B, C) = (softmax - onehot) · `*scale`, which may be the logits'
  /// own memory; null: 0. Adds to `*score`.
  void (*softmax_cross_entropy)(Stream&, std::size_t rows, std::size_t classes, const float* logits,
                                const std::int32_t* labels, const float* scale, float* change,
                                Score* score);
  /// The same of the logits x · weightᵀ + bias, of a layer of at most k_most_scored outputs; and
  /// dx = change · weight, 0 where x is not above 0; null: not.
  void (*score)(Stream&, const DenseShape& shape, const float* x, const float* weight,
                const float* bias, const std::int32_t* labels, const float* scale, float* change,
                float* dx, Score* score);
  /// So many products of DenseShape::backward_weight(), with biases, of small shapes; none reads
  /// what another writes.
  void (*weight_gradients)(Stream&, std::size_t count, const Matmul* products);

  /// y (N, P, O) = the largest of each pool's four of x (N, H, W, C) * weight (O, 3, 3, C), plus
  /// bias (O), what is below 0 to 0. `chosen` (N, P, O): which of the four it was, 4 where it is 0.
  void (*convolution)(Stream&, const ConvolutionShape& shape, const float* x, const float* weight,
                      const float* bias, float* y, std::uint8_t* chosen);
  /// From dy (N, P, O), into dweight (O, 3, 3, C) and dbias (O), or added with `accumulate`. In
  /// `room` are shape.room() floats that are nobody else's.
  void (*convolution_backward_weight)(Stream&, const ConvolutionShape& shape, const float* x,
                                      const float* dy, const std::uint8_t* chosen, bool accumulate,
                                      float* room, float* dweight, float* dbias);
  /// dx (N, H, W, C)
  void (*convolution_backward_input)(Stream&, const ConvolutionShape& shape, const float* dy,
                                     const std::uint8_t* chosen, const float* weight, float* dx);
};

struct Kernels {
  const char* name;
  const char* arithmetic; ///< Kernels of the same one give the same bits.

  /// Of one thread, of a step's state (step_state.h): what the host knows before a step, and what
  /// its gradients' squares have summed up to. Beside it begin() gathers, where that is not null,
  /// and prepare() puts the state into `*told`, too, the host's memory, where that is not.
  void (*begin)(Stream&, const StepRule& rule, const StepInput& input, StepState* state,
                const Gathering* gathering);
  void (*prepare)(Stream&, const StepRule& rule, const double* squares, StepState* state,
                  StepState* told);

  /// In a single pass: of adam 16 bytes read and 12 written a value, and 2 with a copy.
  void (*sgd)(Stream&, std::size_t n, const UpdateRule& rule, const StepState* state,
              const float* gradient, float* m, const Parameters& parameters);
  void (*adam)(Stream&, std::size_t n, const UpdateRule& rule, const StepState* state,
               const float* gradient, float* m, float* v, const Parameters& parameters);
  /// Of one tensor. `u` has room for n values.
  void (*lamb)(Stream&, std::size_t n, const UpdateRule& rule, const StepState* state,
               const float* gradient, float* m, float* v, float* u, const Parameters& parameters);

  // Of Muon (optim/muon.h).
  void (*muon_direction)(Stream&, std::size_t n, const UpdateRule& rule, const StepState* state,
                         const float* gradient, float* m, float* u);
  void (*muon_take)(Stream&, std::size_t n, const UpdateRule& rule, const StepState* state,
                    float ratio, const float* u, const Parameters& parameters);
  /// x /= the root of `*squares`, or 1e-7 where that is less.
  void (*normalise)(Stream&, std::size_t n, const double* squares, float* x);
  /// y = a·x + b·y
  void (*blend)(Stream&, std::size_t n, float a, const float* x, float b, float* y);

  void (*matmul)(Stream&, const Matmul& matmul);

  /// *to = the sum of squares, in float64.
  void (*squares)(Stream&, std::size_t n, const float* gradient, double* to);
  /// *to = from[0] + from[stride] + …, n of them, in this order.
  void (*sum)(Stream&, std::size_t n, std::size_t stride, const double* from, double* to);

  /// to = from / 255
  void (*bytes_to_floats)(Stream&, std::size_t n, const std::uint8_t* from, float* to);
  /// The same of samples, and their labels.
  void (*gather)(Stream&, const Gathering& gathering);

  /// Between float32 and bf16 or f16, as halves.h rounds.
  void (*narrow)(Stream&, std::size_t n, DType type, const float* from, void* to);
  void (*widen)(Stream&, std::size_t n, DType type, const void* from, float* to);

  const LayerKernels* layers;
  const TextKernels* text;
};

} // namespace trainer
