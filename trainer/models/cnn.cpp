// The usual small CNN for images of one channel: 3 × 3 convolution to 32 channels, max-pooling, the
// same to 64 channels, then the fully connected layers of the MLP. Pixels are channels-last: the
// first of those layers reads (H/4, W/4, 64). Images pass the convolutions one by one, and the
// fully connected layers together.
//
// The arenas hold the last layer first.
#include <algorithm>

#include <fmt/format.h>

#include "trainer/errors.h"
#include "trainer/models/models.h"
#include "trainer/models/sliced.h"
#include "trainer/nn/cpu/convolution.h"

namespace trainer {
namespace {

constexpr std::size_t k_channels1 = k_cnn_channels[1];
constexpr std::size_t k_channels2 = k_cnn_channels[2];
constexpr std::size_t k_least_side = 4; ///< Two poolings leave one pixel.

class Cnn final : public SlicedModel {
 public:
  Cnn(const ModelOptions& options, Device& device, const CpuKernels& kernels)
      : SlicedModel(device, flat(options), options, true),
        flat_(flat(options)), grid1_{options.height, options.width}, grid2_{options.height / 2,
                                                                            options.width / 2},
        conv2_("conv2", k_channels1, k_slice_rows, into_dense(), tensors_, kernels),
        conv1_("conv1", k_slice_rows, into_second(), tensors_, kernels),
        features_(k_slice_rows * flat_) {}

  std::string describe() const override {
    return fmt::format("cnn {}x{}-{}-{}-{}", grid1_.height, grid1_.width, k_channels1, k_channels2,
                       dense_.describe());
  }

  void initialize(std::uint64_t seed, std::span<float> arena) const override {
    conv1_.initialize(seed, 0, arena);
    conv2_.initialize(seed, 1, arena);
    dense_.initialize(seed, 2, arena);
  }

 private:
  /// Inputs of the fully connected layers.
  static std::size_t flat(const ModelOptions& options) {
    return options.height / 4 * (options.width / 4) * k_channels2;
  }

  void clear_bias_gradients() override {
    conv2_.clear_bias_gradient(memory(conv2_));
    conv1_.clear_bias_gradient(memory(conv1_));
  }

  void forward(const Batch& slice, bool is_same) override {
    if (!is_same) {
      conv2_.take_parameters(memory(conv2_));
    }
    const float* from = slice[field::images].data(); // (B, H, W)
    for (std::size_t row = 0; row < slice.rows; ++row) {
      float* image = conv1_.input(row);
      for (std::size_t y = 0; y < grid1_.height; ++y, from += grid1_.width) {
        std::copy_n(from, grid1_.width, image + y * grid1_.pitch());
      }
      conv1_.forward(memory(conv1_), row, conv2_.input(row));
      conv2_.forward(memory(conv2_), row, features_.data() + row * flat_); // (H/4, W/4, 64)
    }
    dense_.forward(slice.rows, features_.data());
  }

  void backward(const Batch& slice, bool accumulate, bool is_same, ParameterOwner* owner) override {
    const std::size_t rows = slice.rows;
    const float* change = dense_.backward(rows, features_.data(), accumulate, is_same, owner);
    for (std::size_t row = 0; row < rows; ++row) {
      const float* of_image =
          conv2_.backward(memory(conv2_), row, from_dense(rows), change + row * k_panel);
      conv1_.backward(memory(conv1_), row, of_image, accumulate || row > 0);
    }
    conv2_.finish_backward(memory(conv2_), accumulate);
    for (std::size_t unit = conv2_.unit(); owner != nullptr && unit < units().size(); ++unit) {
      finish(*owner, unit);
    }
  }

  const UnitMemory& memory(const Convolution& layer) const { return memory_[layer.unit()]; }

  /// Inputs of the second convolution.
  Pooling into_second() const {
    return {.grid = grid1_,
            .channels = k_channels1,
            .to_y = grid2_.pitch() * k_channels1,
            .to_x = k_channels1};
  }

  /// Input of the fully connected layers: (H/4, W/4, 64).
  Pooling into_dense() const {
    return {.grid = grid2_,
            .channels = k_channels2,
            .to_y = grid2_.width / 2 * k_channels2,
            .to_x = k_channels2};
  }

  /// Its gradient, in panels (H/4·W/4·64 / 16, B, 16).
  Pooling from_dense(std::size_t rows) const {
    Pooling lies = into_dense();
    lies.to_y *= rows;
    lies.to_x *= rows;
    lies.to_panel *= rows;
    return lies;
  }

  std::size_t flat_;
  PixelGrid grid1_;
  PixelGrid grid2_;
  WinogradConvolution conv2_;
  FirstConvolution conv1_;
  Buffer features_;
};

} // namespace

std::unique_ptr<Model> make_cnn(const ModelOptions& options, Device& device) {
  if (options.height < k_least_side || options.width < k_least_side) {
    throw UsageError(
        fmt::format("--model=cnn: the images have {} × {} pixels; it needs at least {} × {}",
                    options.height, options.width, k_least_side, k_least_side));
  }
  return device.cpu_kernels() == nullptr
             ? make_layered_cnn(options, device)
             : std::make_unique<Cnn>(options, device, *device.cpu_kernels());
}

} // namespace trainer
