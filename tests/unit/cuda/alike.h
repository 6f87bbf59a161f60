// Work on a GPU against the same on the CPU, whose kernels are the oracle.
#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "tests/unit/cuda/gpu.h"
#include "trainer/device/cpu/cpu_device.h"

namespace trainer::test {

using Values = std::vector<float>;

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
template <typename Work>
void check_alike(const std::vector<Values>& arrays, double tolerance, const Work& work) {
  CpuDevice cpu(portable_kernels());
  const auto made_gpu = make_gpu();
  CudaDevice& gpu = *made_gpu;
  const auto expected = on_device(cpu, arrays, work);
  const auto found = on_device(gpu, arrays, work);
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

} // namespace trainer::test
