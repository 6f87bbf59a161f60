// One GPU as check_gpus.h measures it: its matrices, and what is timed with them. A GPU is used by
// one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "trainer/device/cuda/cuda_device.h"
#include "trainer/run/gpu_judgement.h"

namespace trainer {

/// Entries of A and B, from which both are tiled: bf16 values between -1 and 1.
class CheckFactors {
 public:
  CheckFactors();
  std::span<const std::uint16_t> halves() const { return halves_; }
  std::span<const float> floats() const { return floats_; } ///< The same values.

 private:
  std::vector<std::uint16_t> halves_;
  std::vector<float> floats_;
};

class MeasuredGpu {
 public:
  /// A, B, C (n, n). `measured` gets the results; both it and `factors` outlive this. Throws Error
  /// if the GPU has no memory for the matrices.
  MeasuredGpu(CudaDevice& gpu, std::size_t n, const CheckFactors& factors,
              GpuMeasurement& measured);

  /// Computes the first product, and checks it against the host.
  void multiply_once();
  /// Repeats the product for so long, and compares each with the first.
  void multiply_for(double seconds);
  void copy_in_memory();
  /// Copies from the other's memory into this one's.
  void copy_from(MeasuredGpu& other, LinkMeasurement& link);

 private:
  void tile(const Buffer& matrix, std::size_t shift);
  void multiply(const Buffer& to);
  void check_entries();
  void take_digest();
  /// *sum = the sum of squares of first - at, which overwrites `at`.
  void subtract(std::size_t count, const float* first, float* at, SquareSum* sum);
  /// Seconds of one of the operations that `put` puts on the stream: the least of a few tries.
  template <typename Put>
  double seconds_of(const Put& put);

  CudaDevice& gpu_;
  std::size_t n_;
  const CheckFactors& factors_;
  GpuMeasurement& measured_;
  DType type_;
  Buffer a_;
  Buffer b_;
  Buffer first_; ///< The first product, float32,
  Buffer c_;     ///< and the latest.
  Buffer sums_;  ///< A SquareSum for each repetition of a batch.
};

} // namespace trainer
