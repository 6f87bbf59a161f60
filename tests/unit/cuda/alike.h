// Work on a GPU against the same on the CPU, whose kernels are the oracle.
#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "tests/unit/cuda/gpu.h"
#include "trainer/device/cpu/cpu_device.h"

namespace trainer::test {

/// The gradient of a bias of so many outputs is the sum of dy's rows, of which none is left out.
inline void check_bias_gradient(Device& device, DType type, std::size_t rows, std::size_t outputs,
                                bool accumulate) {
  constexpr std::size_t k_inputs = 16;
  constexpr float k_before = 0.5F;
  const Values dy = rounded(numbers(rows * outputs, 1));
  On<float> floats(device, dy);
  const Activations halves(device, dy);
  On<float> x(device, numbers(rows * k_inputs, 2));
  On<float> dweight(device, Values(outputs * k_inputs));
  On<float> dbias(device, Values(outputs, k_before));
  const DenseShape shape{rows, k_inputs, outputs};
  device.kernels().matmul(device.stream(),
                          shape.backward_weight(x.data(),
                                                type == DType::f32
                                                    ? ConstTypedPointer(floats.data())
                                                    : ConstTypedPointer(halves.pointer()),
                                                accumulate, dweight.data(), dbias.data()));
  const Values found = dbias.read();
  std::size_t wrong = 0;
  for (std::size_t output = 0; output < outputs; ++output) {
    double sum = accumulate ? k_before : 0;
    for (std::size_t row = 0; row < rows; ++row) {
      sum += double{dy[row * outputs + output]};
    }
    wrong += std::abs(found[output] - sum) <= 1e-6 * static_cast<double>(rows) ? 0 : 1;
  }
  CAPTURE(rows);
  CAPTURE(outputs);
  CAPTURE(accumulate);
  CAPTURE(static_cast<int>(type));
  CHECK(wrong == 0);
}

/// What `work` leaves of `arrays` on a device: given the device and where they lie.
template <typename Work>
std::vector<Values> on_device(Device& device, const std::vector<Values>& arrays, const Work& work) {
  std::vector<On<float>> there;
  std::vector<float*> data;
  for (const Values& values : arrays) {
    data.push_back(there.emplace_back(device, values).data());
  }
  work(device, data);
  std::vector<Values> left;
  for (On<float>& one : there) {
    left.push_back(one.read());
  }
  return left;
}

/// `tolerance`: of each value, and of its size.
inline void check_near(const std::vector<Values>& found, const std::vector<Values>& expected,
                       double tolerance) {
  for (std::size_t array = 0; array < expected.size(); ++array) {
    for (std::size_t i = 0; i < expected[array].size(); ++i) {
      const double difference = std::abs(double{found[array][i]} - double{expected[array][i]});
      if (!(difference <= tolerance * (1 + std::abs(double{expected[array][i]})))) {
        CAPTURE(array);
        CAPTURE(i);
        REQUIRE(found[array][i] == expected[array][i]);
      }
    }
  }
}

template <typename Work>
void check_alike(const std::vector<Values>& arrays, double tolerance, const Work& work) {
  CpuDevice cpu(portable_kernels());
  const auto made_gpu = make_gpu();
  CudaDevice& gpu = *made_gpu;
  const auto expected = on_device(cpu, arrays, work);
  check_near(on_device(gpu, arrays, work), expected, tolerance);
}

} // namespace trainer::test
