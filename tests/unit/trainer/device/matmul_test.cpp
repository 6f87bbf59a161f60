#include "tests/unit/trainer/device/matmul_oracle.h"

#include "trainer/device/cpu/cpu_device.h"

using namespace trainer;
using namespace trainer::test;

namespace {

std::vector<const CpuKernels*> all_sets() {
  std::vector<const CpuKernels*> sets;
  for (const CpuKernels* kernels : {&portable_kernels(), avx2_kernels(), avx512_kernels()}) {
    if (kernels != nullptr) {
      sets.push_back(kernels);
    }
  }
  return sets;
}

/// Two fully connected layers, 6 rows through 5, 19 and 3 values: what they are made of, and the
/// gradients of Σ `change` · output.
struct Layers {
  static constexpr DenseShape k_first{6, 5, 19};
  static constexpr DenseShape k_second{6, 19, 3};

  std::vector<float> x = numbers(6 * 5, 1);
  std::vector<float> weight1 = numbers(19 * 5, 2);
  std::vector<float> bias1 = numbers(19, 3);
  std::vector<float> weight2 = numbers(3 * 19, 4);
  std::vector<float> bias2 = numbers(3, 5);
  std::vector<float> change = numbers(6 * 3, 6);

  /// In float64.
  double sum(bool is_gelu) const {
    double all = 0;
    for (std::size_t row = 0; row < 6; ++row) {
      double h[19];
      for (std::size_t j = 0; j < 19; ++j) {
        double u = bias1[j];
        for (std::size_t i = 0; i < 5; ++i) {
          u += double{x[row * 5 + i]} * double{weight1[j * 5 + i]};
        }
        h[j] = is_gelu ? u * phi(u) : u > 0 ? u : 0;
      }
      for (std::size_t o = 0; o < 3; ++o) {
        double y = bias2[o];
        for (std::size_t j = 0; j < 19; ++j) {
          y += h[j] * double{weight2[o * 19 + j]};
        }
        all += y * double{change[row * 3 + o]};
      }
    }
    return all;
  }
};

} // namespace

TEST_CASE("a product is float64's on each set of CPU kernels, whatever its shape and epilogue") {
  for (const CpuKernels* kernels : all_sets()) {
    CAPTURE(kernels->name);
    CpuDevice device(*kernels);
    check_all_matmuls(device);
  }
}

TEST_CASE(
    "the gradients of products with ReLU and GELU behind them agree with finite differences") {
  for (const CpuKernels* kernels : all_sets()) {
    for (const bool is_gelu : {false, true}) {
      CAPTURE(kernels->name);
      CAPTURE(is_gelu);
      CpuDevice device(*kernels);
      Layers of;
      const DenseShape& first = Layers::k_first;
      const DenseShape& second = Layers::k_second;
      std::vector<float> u(6 * 19), h(6 * 19), du(6 * 19), dx(6 * 5);
      std::vector<float> dweight1(19 * 5), dbias1(19), dweight2(3 * 19), dbias2(3);
      const auto put = [&](const Matmul& matmul) {
        device.kernels().matmul(device.stream(), matmul);
      };
      put(first.forward(of.x.data(), of.weight1.data(), of.bias1.data(), h.data(),
                        is_gelu ? Epilogue::gelu_bias : Epilogue::relu_bias, u.data()));
      put(second.backward_weight(h.data(), of.change.data(), false, dweight2.data(),
                                 dbias2.data()));
      put(second.backward_input(of.change.data(), of.weight2.data(),
                                is_gelu ? Epilogue::dgelu : Epilogue::drelu,
                                is_gelu ? u.data() : h.data(), du.data()));
      put(first.backward_weight(of.x.data(), du.data(), false, dweight1.data(), dbias1.data()));
      put(first.backward_input(du.data(), of.weight1.data(), false, dx.data()));
      const auto check = [&](std::vector<float>& of_what, const std::vector<float>& gradient) {
        constexpr float k_off = 1.0F / 4096;
        for (std::size_t i = 0; i < of_what.size(); ++i) {
          const float value = of_what[i];
          of_what[i] = value + k_off;
          const double above = of.sum(is_gelu);
          const double step = double{of_what[i]};
          of_what[i] = value - k_off;
          const double slope = (above - of.sum(is_gelu)) / (step - double{of_what[i]});
          of_what[i] = value;
          CHECK(gradient[i] == doctest::Approx(slope).epsilon(1e-3));
        }
      };
      check(of.x, dx);
      check(of.weight1, dweight1);
      check(of.bias1, dbias1);
      check(of.weight2, dweight2);
      check(of.bias2, dbias2);
    }
  }
}
