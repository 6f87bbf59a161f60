// 3 × 3 convolutions with padding, followed by 2 × 2 max-pooling and ReLU. They process one image
// at a time, so that the output of one kernel is in a core's caches when the next one reads it.
//
// Letters: T pools, C channels in, O out, both multiples of 16 but for C = 1. Cost of a step and an
// image: 6·T·16·C·O FLOP in Winograd's form (device/cpu/kernels.h), which without it were
// 6·T·36·C·O; with one channel 4·T·36·O.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trainer/device/buffer.h"
#include "trainer/device/cpu/kernels.h"
#include "trainer/nn/parameter_owner.h"
#include "trainer/nn/tensor_table.h"

namespace trainer {

/// What both kinds share: parameters, images, and the pixels that pools chose.
class Convolution {
 public:
  /// Adds NAME.bias [O] and NAME.weight [O, 3, 3, C] to `tensors` as a unit. For at most `rows`
  /// images. `pooling` says where the values of an image's pools go.
  Convolution(const std::string& name, std::size_t channels, std::size_t rows,
              const Pooling& pooling, TensorTable& tensors, const CpuKernels& kernels);

  std::size_t unit() const { return unit_; }

  /// Glorot uniform, as Keras' Conv2D; bias 0.
  void initialize(std::uint64_t seed, std::uint32_t layer, std::span<float> arena) const;
  void clear_bias_gradient(const UnitMemory& memory) const;

  /// Where to put image `row`: (grid, C); leave the gaps between its rows alone.
  float* input(std::size_t row) {
    return input_.data() + (grid().margin() + row * grid().image()) * channels_;
  }

 protected:
  const PixelGrid& grid() const { return pooling_.grid; }
  const float* weight(const UnitMemory& memory) const { ///< (O / 16, 9, C, 16), after the bias.
    return memory.weights + pooling_.channels;
  }
  float* weight_gradient(const UnitMemory& memory) const {
    return memory.gradients + pooling_.channels;
  }
  std::uint8_t* chosen(std::size_t row) {
    return chosen_.data() + row * grid().pools() * pooling_.channels;
  }

  const std::size_t channels_;
  const Pooling pooling_;
  const CpuKernels& kernels_;

 private:
  std::size_t unit_;
  std::size_t first_; ///< Offset of its parameters in the arenas.
  Buffer input_;      ///< (margin + grid + margin, C)
  std::vector<std::uint8_t> chosen_;
};

/// For images with one channel, whose own gradient is not needed.
class FirstConvolution : public Convolution {
 public:
  FirstConvolution(const std::string& name, std::size_t rows, const Pooling& pooling,
                   TensorTable& tensors, const CpuKernels& kernels)
      : Convolution(name, 1, rows, pooling, tensors, kernels) {}

  void forward(const UnitMemory& memory, std::size_t row, float* to);
  /// `change`: the gradient of what forward() wrote to `to`, in the same layout.
  void backward(const UnitMemory& memory, std::size_t row, const float* change, bool accumulate);
};

/// For images with more channels, in Winograd's form.
class WinogradConvolution : public Convolution {
 public:
  WinogradConvolution(const std::string& name, std::size_t channels, std::size_t rows,
                      const Pooling& pooling, TensorTable& tensors, const CpuKernels& kernels);

  /// Call before the first forward() with new parameters.
  void take_parameters(const UnitMemory& memory);
  void forward(const UnitMemory& memory, std::size_t row, float* to);
  /// From the gradient of what forward() wrote to `to`, in the layout `change_lies`, returns that
  /// of input(row), in the same layout and valid until the next call. Adds the weight's gradient to
  /// what finish_backward() takes.
  const float* backward(const UnitMemory& memory, std::size_t row, const Pooling& change_lies,
                        const float* change);
  void finish_backward(const UnitMemory& memory, bool accumulate);

 private:
  std::size_t outputs() const { return pooling_.channels; }

  std::size_t image_plane_;  ///< Distance between matrices of an image,
  std::size_t output_plane_; ///< of its outputs,
  std::size_t kernel_plane_; ///< of kernels.
  std::size_t added_ = 0;    ///< Images summed in kernel_change_.
  Buffer kernel_;            ///< (16, O / 16, C, 16)
  Buffer turned_;            ///< (C / 16, 9, O, 16)
  Buffer turned_kernel_;     ///< (16, C / 16, O, 16)
  Buffer kernel_change_;     ///< (16, O / 16, C, 16)
  Buffer image_;             ///< (16, T, C)
  Buffer outputs_;           ///< (16, T, O), or their gradient.
  Buffer image_change_;      ///< (16, T, C)
  Buffer input_change_;      ///< (margin + grid + margin, C)
};

} // namespace trainer
