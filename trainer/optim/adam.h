// Adam, with PyTorch's meaning of epsilon: p -= lr / (1 - β1^t) · m / (sqrt(v / (1 - β2^t)) + ε).
//
// Every element is updated in one pass and by itself, so an arena may be updated piece by piece, as
// its buckets arrive, with the same bits as a result.
#pragma once

#include <cstdint>
#include <span>

#include "trainer/device/buffer.h"
#include "trainer/device/cpu/kernels.h"

namespace trainer {

class AdamOptimizer {
 public:
  AdamOptimizer(std::span<float> parameters, std::span<const float> gradients, double learning_rate,
                const CpuKernels& kernels);

  /// Begins step t = 1, 2, …
  void begin_step();

  /// Updates parameters [first, last) from the gradients there; multiples of 16.
  void update(std::size_t first, std::size_t last);

  /// Takes them from there from now on.
  void set_gradients(std::span<const float> gradients) { gradients_ = gradients; }

  std::int64_t step() const { return step_; }
  void set_step(std::int64_t step) { step_ = step; }
  /// Of the steps that begin from here on.
  void set_learning_rate(double rate) { learning_rate_ = rate; }
  std::span<float> first_moments() const { return m_.span(); }
  std::span<float> second_moments() const { return v_.span(); }

 private:
  const CpuKernels* kernels_;
  std::span<float> parameters_;
  std::span<const float> gradients_;
  Buffer m_;
  Buffer v_;
  double learning_rate_;
  std::int64_t step_ = 0;
  Adam constants_;
};

} // namespace trainer
