#include "trainer/nn/cpu/convolution.h"

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "trainer/random.h"

using namespace trainer;

namespace {

constexpr std::size_t k_rows = 3;

std::vector<const CpuKernels*> all_kernels() {
  std::vector<const CpuKernels*> sets = {&portable_kernels()};
  for (const CpuKernels* kernels : {avx2_kernels(), avx512_kernels()}) {
    if (kernels != nullptr) {
      sets.push_back(kernels);
    }
  }
  return sets;
}

float number(std::uint32_t salt, std::size_t i) {
  return 2 * uniform(random_at(1, RandomStream::weights, salt, i)[0]) - 1;
}

/// What three images give, and the gradients of Σ number(3, value) · value.
struct Result {
  std::vector<double> values; ///< (B, H/2, W/2, O)
  std::vector<double> bias_gradient;
  std::vector<double> weight_gradient; ///< [O, 3, 3, C]
  std::vector<double> image_gradient;  ///< (B, H, W, C)
};

struct Shape {
  std::size_t height;
  std::size_t width;
  std::size_t channels;
  std::size_t outputs;

  std::size_t image() const { return height * width * channels; }
  std::size_t pools() const { return height / 2 * (width / 2); }
};

/// By plain loops, of tensors as a checkpoint has them.
Result by_plain_loops(const Shape& s, const std::vector<float>& images,
                      const std::vector<float>& weight, const std::vector<float>& bias) {
  Result all{{},
             std::vector<double>(s.outputs),
             std::vector<double>(weight.size()),
             std::vector<double>(images.size())};
  /// Each pixel and weight that a value of output `o` at (y, x) is the sum of.
  const auto each = [&](std::size_t y, std::size_t x, std::size_t o, const auto& act) {
    for (std::size_t tap = 0; tap < 9; ++tap) {
      const std::size_t from_y = y + tap / 3;
      const std::size_t from_x = x + tap % 3;
      if (from_y < 1 || from_x < 1 || from_y > s.height || from_x > s.width) {
        continue;
      }
      for (std::size_t c = 0; c < s.channels; ++c) {
        act(((from_y - 1) * s.width + from_x - 1) * s.channels + c, (o * 9 + tap) * s.channels + c);
      }
    }
  };
  for (std::size_t row = 0; row < k_rows; ++row) {
    const float* image = images.data() + row * s.image();
    for (std::size_t at = 0; at < s.pools() * s.outputs; ++at) {
      const std::size_t o = at % s.outputs;
      const std::size_t y = at / s.outputs / (s.width / 2) * 2;
      const std::size_t x = at / s.outputs % (s.width / 2) * 2;
      double best = -1e9;
      std::size_t which = 0;
      for (std::size_t i = 0; i < 4; ++i) {
        double sum = bias[o];
        each(y + i / 2, x + i % 2, o, [&](std::size_t pixel, std::size_t tap) {
          sum += double{image[pixel]} * double{weight[tap]};
        });
        which = sum > best ? i : which;
        best = std::max(best, sum);
      }
      const double change = best > 0 ? number(3, all.values.size()) : 0;
      all.values.push_back(std::max(best, 0.0));
      all.bias_gradient[o] += change;
      each(y + which / 2, x + which % 2, o, [&](std::size_t pixel, std::size_t tap) {
        all.weight_gradient[tap] += change * double{image[pixel]};
        all.image_gradient[row * s.image() + pixel] += change * double{weight[tap]};
      });
    }
  }
  return all;
}

void check_close(const std::vector<float>& found, const std::vector<double>& expected) {
  REQUIRE(found.size() == expected.size());
  double worst = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    worst = std::max(worst, std::abs(double{found[i]} - expected[i]) / (1 + std::abs(expected[i])));
  }
  CHECK(worst < 1e-5);
}

/// A layer with arenas of its own.
template <typename Layer>
struct Fixture {
  template <typename... Arguments>
  Fixture(const Shape& shape, const Pooling& pooling, const CpuKernels& kernels,
          Arguments... arguments)
      : s(shape), layer("layer", arguments..., k_rows, pooling, tensors, kernels),
        parameters(tensors.arena_size()), gradients(tensors.arena_size()) {
    for (std::size_t t = 0; t < 2; ++t) {
      std::vector<float>& values = t == 0 ? bias : weight;
      for (std::size_t i = 0; i < tensors[t].count(); ++i) {
        values.push_back(number(static_cast<std::uint32_t>(t), i));
      }
      tensors[t].write(values, parameters.span().subspan(tensors[t].offset, tensors[t].size));
    }
    for (std::size_t i = 0; i < k_rows * s.image(); ++i) {
      images.push_back(number(2, i));
      const std::size_t row_size = s.width * s.channels;
      const std::size_t y = i % s.image() / row_size;
      layer.input(i / s.image())[y * (row_size + s.channels) + i % row_size] = images.back();
    }
    expected = by_plain_loops(s, images, weight, bias);
  }
  std::vector<float> gradient(std::size_t tensor) const {
    std::vector<float> values(tensors[tensor].count());
    tensors[tensor].read(gradients.span().subspan(tensors[tensor].offset, tensors[tensor].size),
                         values);
    return values;
  }
  void check_gradients(double times) const {
    for (std::size_t t = 0; t < 2; ++t) {
      std::vector<double> sums = t == 0 ? expected.bias_gradient : expected.weight_gradient;
      for (double& sum : sums) {
        sum *= times;
      }
      check_close(gradient(t), sums);
    }
  }

  Shape s;
  TensorTable tensors;
  Layer layer;
  Buffer parameters;
  Buffer gradients;
  UnitMemory memory{parameters.data(), gradients.data()};
  std::vector<float> bias;
  std::vector<float> weight;
  std::vector<float> images;
  Result expected;
};

std::vector<float> change_of(std::size_t row, std::size_t count) {
  std::vector<float> change;
  for (std::size_t i = 0; i < count; ++i) {
    change.push_back(number(3, row * count + i));
  }
  return change;
}

/// Behind one another, pool by pool.
Pooling plain(const Shape& s) {
  return {.grid = {s.height, s.width},
          .channels = s.outputs,
          .to_y = s.width / 2 * s.outputs,
          .to_x = s.outputs};
}

} // namespace

TEST_CASE("a convolution in Winograd's form gives what plain loops do, and its gradients") {
  for (const CpuKernels* kernels : all_kernels()) {
    for (const Shape& s : {Shape{8, 8, 32, 48}, Shape{7, 5, 16, 32}, Shape{2, 3, 32, 16}}) {
      CAPTURE(kernels->name);
      CAPTURE(s.height);
      const Pooling pooling = plain(s);
      Fixture<WinogradConvolution> f(s, pooling, *kernels, s.channels);
      f.layer.take_parameters(f.memory);
      const std::size_t count = s.pools() * s.outputs;
      std::vector<float> values(k_rows * count);
      for (std::size_t row = 0; row < k_rows; ++row) {
        f.layer.forward(f.memory, row, values.data() + row * count);
      }
      check_close(values, f.expected.values);
      for (const double times : {1, 2}) {
        std::vector<float> image_gradient;
        for (std::size_t row = 0; row < k_rows; ++row) {
          const float* image =
              f.layer.backward(f.memory, row, pooling, change_of(row, count).data());
          const std::size_t row_size = s.width * s.channels;
          for (std::size_t y = 0; y < s.height; ++y, image += row_size + s.channels) {
            image_gradient.insert(image_gradient.end(), image, image + row_size);
          }
        }
        f.layer.finish_backward(f.memory, times > 1);
        check_close(image_gradient, f.expected.image_gradient);
        f.check_gradients(times);
      }
    }
  }
}

TEST_CASE("a convolution of one channel gives what plain loops do, and its gradients") {
  for (const CpuKernels* kernels : all_kernels()) {
    for (const Shape& s : {Shape{8, 8, 1, 32}, Shape{7, 5, 1, 16}}) {
      CAPTURE(kernels->name);
      const Pooling pooling = plain(s);
      Fixture<FirstConvolution> f(s, pooling, *kernels);
      const std::size_t count = s.pools() * s.outputs;
      std::vector<float> values(k_rows * count);
      for (std::size_t row = 0; row < k_rows; ++row) {
        f.layer.forward(f.memory, row, values.data() + row * count);
      }
      check_close(values, f.expected.values);
      for (const double times : {1, 2}) {
        for (std::size_t row = 0; row < k_rows; ++row) {
          f.layer.backward(f.memory, row, change_of(row, count).data(), times > 1 || row > 0);
        }
        f.check_gradients(times);
      }
    }
  }
}
