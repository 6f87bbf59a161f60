// The CNN with the kernels that every device has, for GPUs. Its tensors equal those of the CPU's
// CNN (cnn.cpp), so that both read each other's checkpoints.
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "trainer/models/models.h"
#include "trainer/models/sliced.h"
#include "trainer/random.h"

namespace trainer {
namespace {

/// The two convolutions, of all images at once.
class LayeredCnn final : public SlicedModel {
 public:
  LayeredCnn(const ModelOptions& options, Device& device)
      : SlicedModel(device, options.height / 4 * (options.width / 4) * k_cnn_channels[2], options,
                    true) {
    std::size_t height = options.height;
    std::size_t width = options.width;
    for (std::size_t i = 0; i < layers_.size(); ++i, height /= 2, width /= 2) {
      layers_[i].shape = {0, height, width, k_cnn_channels[i], k_cnn_channels[i + 1]};
    }
    for (std::size_t i = layers_.size(); i-- > 0;) {
      const std::string name = fmt::format("conv{}", i + 1);
      const ConvolutionShape& shape = layers_[i].shape;
      layers_[i].unit = tensors_.begin_unit();
      const std::size_t bias = tensors_.add(name + ".bias", {shape.outputs});
      const std::size_t weight =
          tensors_.add(name + ".weight", {shape.outputs, 3, 3, shape.channels});
      layers_[i].bias = tensors_[bias].in_unit;
      layers_[i].weight = tensors_[weight].in_unit;
    }
  }

  std::string describe() const override {
    const ConvolutionShape& first = layers_[0].shape;
    return fmt::format("cnn {}x{}-{}-{}-{}", first.height, first.width, k_cnn_channels[1],
                       k_cnn_channels[2], dense_.describe());
  }

  double flops() const override {
    double sum = dense_.flops();
    for (const Layer& layer : layers_) {
      const ConvolutionShape& s = layer.shape;
      sum += (&layer == &layers_.front() ? 4.0 : 6.0) *
             static_cast<double>(4 * s.pools() * 9 * s.channels * s.outputs);
    }
    return sum;
  }

  /// As Convolution::initialize().
  void initialize(std::uint64_t seed, std::span<float> arena) const override {
    std::uint32_t number = 0;
    for (const Layer& layer : layers_) {
      const std::size_t outputs = layer.shape.outputs;
      const std::size_t inputs = 9 * layer.shape.channels;
      const float limit = std::sqrt(6.0F / static_cast<float>(inputs + 9 * outputs));
      float* const weight = arena.data() + units()[layer.unit].first + layer.weight;
      for (std::size_t i = 0; i < inputs; ++i) {
        for (std::size_t o = 0; o < outputs; ++o) {
          const auto bits = random_at(seed, RandomStream::weights, number, i * outputs + o);
          weight[o * inputs + i] = limit * (2 * uniform(bits[0]) - 1);
        }
      }
      ++number;
    }
    dense_.initialize(seed, number, arena);
  }

 private:
  struct Layer {
    ConvolutionShape shape{};
    std::size_t unit = 0;
    std::size_t bias = 0; ///< Offset of the bias in the unit.
    std::size_t weight = 0;
    Buffer y{0};      ///< (N, P, O)
    Buffer dy{0};     ///< Gradient of y; the last one is with the fully connected layers.
    Buffer chosen{0}; ///< (N, P, O)
    Buffer room{0};   ///< Scratch memory of the weight's gradient.
  };

  void make_room_below(std::size_t rows) override {
    for (Layer& layer : layers_) {
      ConvolutionShape& shape = layer.shape;
      shape.images = rows;
      const std::size_t values = shape.images * shape.pools() * shape.outputs;
      if (layer.y.size() < values) {
        layer.y = device_.allocate(values, DType::f32);
        layer.dy = device_.allocate(&layer == &layers_.back() ? 0 : values, DType::f32);
        layer.chosen = device_.allocate(values, DType::u8);
        layer.room = device_.allocate(shape.room(), DType::f32);
      }
    }
  }

  void forward(const Batch& batch, bool /*is_same*/) override {
    make_room_below(batch.rows);
    const float* x = batch[field::images].data();
    for (const Layer& layer : layers_) {
      const float* const weights = memory_[layer.unit].weights;
      device_.kernels().layers->convolution(device_.stream(), layer.shape, x,
                                            weights + layer.weight, weights + layer.bias,
                                            layer.y.data(), chosen(layer));
      x = layer.y.data();
    }
    dense_.forward(batch.rows, x);
  }

  void backward(const Batch& batch, bool accumulate, bool is_same, ParameterOwner* owner) override {
    const float* dy =
        dense_.backward(batch.rows, layers_.back().y.data(), accumulate, is_same, owner);
    const LayerKernels& kernels = *device_.kernels().layers;
    Stream& stream = device_.stream();
    for (std::size_t i = layers_.size(); i-- > 0;) {
      Layer& layer = layers_[i];
      const float* const x = i == 0 ? batch[field::images].data() : layers_[i - 1].y.data();
      const UnitMemory& memory = memory_[layer.unit];
      kernels.convolution_backward_weight(stream, layer.shape, x, dy, chosen(layer), accumulate,
                                          layer.room.data(), memory.gradients + layer.weight,
                                          memory.gradients + layer.bias);
      if (i > 0) {
        kernels.convolution_backward_input(stream, layer.shape, dy, chosen(layer),
                                           memory.weights + layer.weight, layers_[i - 1].dy.data());
        dy = layers_[i - 1].dy.data();
      }
      finish(*owner, layer.unit);
    }
  }

  static std::uint8_t* chosen(const Layer& layer) {
    return static_cast<std::uint8_t*>(layer.chosen.memory());
  }

  std::array<Layer, 2> layers_;
};

} // namespace

std::unique_ptr<Model> make_layered_cnn(const ModelOptions& options, Device& device) {
  return std::make_unique<LayeredCnn>(options, device);
}

} // namespace trainer
