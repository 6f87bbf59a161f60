// The small convolutional network of the field for images of one channel: convolution of 3 × 3
// pixels, 32 channels, max-pooling, the same with 64 channels, then the fully connected layers of
// the MLP. Pixels are seen channels last: the first of those layers reads (H/4, W/4, 64). Images go
// through the convolutions one by one, and together through the layers behind them.
//
// The arenas hold the last layer first.
#include <algorithm>

#include <fmt/format.h>

#include "trainer/errors.h"
#include "trainer/models/models.h"
#include "trainer/models/sliced.h"
#include "trainer/nn/convolution.h"

namespace trainer {
namespace {

constexpr std::size_t k_cnn_slice = 64; ///< Images that share the fully connected layers' weights.
constexpr std::size_t k_channels1 = k_cnn_channels[1];
constexpr std::size_t k_channels2 = k_cnn_channels[2];
constexpr std::size_t k_least_side = 4; ///< Of an image: two poolings leave one pixel.

class Cnn final : public SlicedModel {
 public:
  Cnn(const ModelOptions& options, const CpuKernels& kernels)
      : SlicedModel(k_cnn_slice, flat(options), options, kernels),
        flat_(flat(options)), grid1_{options.height, options.width}, grid2_{options.height / 2,
                                                                            options.width / 2},
        conv2_("conv2", k_channels1, k_cnn_slice, into_dense(), tensors_, kernels),
        conv1_("conv1", k_cnn_slice, into_second(), tensors_, kernels),
        features_(k_cnn_slice * flat_) {
    units_.push_back({"conv2", conv2_.first(), conv2_.last()});
    units_.push_back({"conv1", conv1_.first(), conv1_.last()});
  }

  std::string describe() const override {
    return fmt::format("cnn {}x{}-{}-{}-{}", grid1_.height, grid1_.width, k_channels1, k_channels2,
                       dense_.describe());
  }

  void bind(std::span<float> parameters, std::span<float> gradients) override {
    dense_.bind(parameters, gradients);
    conv2_.bind(parameters, gradients);
    conv1_.bind(parameters, gradients);
  }

  void initialize(std::uint64_t seed) override {
    conv1_.initialize(seed, 0);
    conv2_.initialize(seed, 1);
    dense_.initialize(seed, 2);
  }

 private:
  /// Inputs of the fully connected layers.
  static std::size_t flat(const ModelOptions& options) {
    return options.height / 4 * (options.width / 4) * k_channels2;
  }

  bool has_layers_below() const override { return true; }

  void clear_bias_gradients() override {
    SlicedModel::clear_bias_gradients();
    conv2_.clear_bias_gradient();
    conv1_.clear_bias_gradient();
  }

  void forward(const Batch& slice, bool is_same) override {
    if (!is_same) {
      conv2_.take_parameters();
    }
    const float* from = slice.images.data(); // (B, H, W)
    for (std::size_t row = 0; row < slice.rows; ++row) {
      float* image = conv1_.input(row);
      for (std::size_t y = 0; y < grid1_.height; ++y, from += grid1_.width) {
        std::copy_n(from, grid1_.width, image + y * grid1_.pitch());
      }
      conv1_.forward(row, conv2_.input(row));
      conv2_.forward(row, features_.data() + row * flat_); // (H/4, W/4, 64)
    }
    dense_.forward(slice.rows, features_.data());
  }

  void backward(const Batch& slice, bool accumulate, bool is_same, const Hooks& hooks) override {
    const std::size_t rows = slice.rows;
    const float* change = dense_.backward(rows, features_.data(), accumulate, is_same, true, hooks);
    for (std::size_t row = 0; row < rows; ++row) {
      const float* of_image = conv2_.backward(row, from_dense(rows), change + row * k_panel);
      conv1_.backward(row, of_image, accumulate || row > 0);
    }
    conv2_.finish_backward(accumulate);
    tell(hooks, conv2_.last(), dense_.layers());
    tell(hooks, conv1_.last(), dense_.layers() + 1);
  }

  static void tell(const Hooks& hooks, std::size_t final, std::size_t unit) {
    if (hooks.final) {
      hooks.final(final);
    }
    if (hooks.done) {
      hooks.done(unit);
    }
  }

  /// The images of the second convolution.
  Pooling into_second() const {
    return {.grid = grid1_,
            .channels = k_channels1,
            .to_y = grid2_.pitch() * k_channels1,
            .to_x = k_channels1};
  }

  /// What the fully connected layers read: (H/4, W/4, 64).
  Pooling into_dense() const {
    return {.grid = grid2_,
            .channels = k_channels2,
            .to_y = grid2_.width / 2 * k_channels2,
            .to_x = k_channels2};
  }

  /// Their gradient of it: the same in panels (H/4·W/4·64 / 16, B, 16).
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
    throw UsageError(fmt::format("--model=cnn: images of {} × {} pixels; needs {} × {} at least",
                                 options.height, options.width, k_least_side, k_least_side));
  }
  return device.cpu_kernels() == nullptr ? make_layered_cnn(options, device)
                                         : std::make_unique<Cnn>(options, *device.cpu_kernels());
}

} // namespace trainer
