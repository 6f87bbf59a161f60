// A convolution of 3 × 3 pixels, as many pixels out as in, then 2 × 2 max-pooling and ReLU.
//
// It is matrix products without a copy: with channels last and the zeros of PixelGrid around rows,
// the three pixels of one row of the kernel that belong to a pixel lie on end, as do those of the
// next pixel, one pixel further. So a product of all pixels by 3·C inputs a kernel's row, three of
// which add up, reads the images as they lie; the pixels between rows and images come out as
// nonsense, which no pool looks at, and have no gradient.
//
// Letters: B images, P pixels of their grid, C channels in, O out, a multiple of 16. Cost of a
// step: 6·P·9·C·O FLOP, of which images' own gradient, where nobody wants it, is a third.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trainer/device/buffer.h"
#include "trainer/device/cpu/kernels.h"
#include "trainer/nn/tensor_table.h"

namespace trainer {

class Convolution {
 public:
  /// Adds NAME.bias [O] and NAME.weight [O, 3, 3, C] to `tensors`. For `rows` images at most.
  Convolution(const std::string& name, std::size_t channels, std::size_t outputs,
              const PixelGrid& grid, std::size_t rows, TensorTable& tensors,
              const CpuKernels& kernels);

  std::size_t first() const { return first_; } ///< Of its parameters, in the arenas.
  std::size_t last() const { return last_; }

  void bind(std::span<float> parameters, std::span<float> gradients);
  /// Glorot uniform, as Keras' Conv2D; bias 0.
  void initialize(std::uint64_t seed, std::uint32_t layer);
  void clear_bias_gradient();

  /// Where its images are to be put: (grid, C), what is between them left alone.
  float* input() { return input_.data() + grid_.margin() * channels_; }

  /// Pools into `to`, laid out as `pooling` says, whose to_… alone are used.
  void forward(const Pooling& pooling, float* to);
  /// From the gradient of what forward() put into `to`, in the layout that `pooling` says.
  void backward(const Pooling& pooling, const float* change, bool accumulate);
  /// After backward(): the gradient of input(), likewise laid out. `is_same`: the parameters are
  /// those of the last call.
  const float* backward_input(std::size_t rows, bool is_same);

 private:
  Pooling with_own(const Pooling& pooling) const;
  /// Pixels from the first of the first image to the last of the last.
  std::size_t pixels(std::size_t rows) const { return rows * grid_.image() - grid_.margin(); }

  std::size_t channels_;
  std::size_t outputs_;
  PixelGrid grid_;
  const CpuKernels* kernels_;
  std::size_t first_;
  std::size_t last_;
  std::size_t plane_; ///< Floats of a panel of changes_.
  float* parameters_ = nullptr;
  float* gradients_ = nullptr;
  Buffer input_;               ///< (margin + grid + margin, C)
  Buffer outputs_before_pool_; ///< (grid, O)
  Buffer changes_;             ///< Their gradient: (O / 16, margin + grid + margin, 16)
  Buffer input_changes_{0};    ///< (grid, C)
  Buffer turned_{0};           ///< The weight for backward_input(): (O / 16, 3, C / 16, 48, 16)
  std::vector<std::uint8_t> chosen_; ///< By pools.
};

} // namespace trainer
