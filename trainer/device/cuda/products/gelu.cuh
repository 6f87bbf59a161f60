// gelu and its slope, exact and by tanh. Float32 takes the functions of CUDA's library. Where a
// result is rounded to bf16, both come from one exponential, to about 2e-7: a kernel is then bound
// by memory.
#pragma once

#include <cmath>

#include "trainer/device/cuda/products/mma.cuh"
#include "trainer/device/halves.h"

namespace trainer {
namespace {

constexpr float k_gelu_peak = 0.39894228F;   ///< 1 / √(2π)
constexpr float k_tanh_factor = -1.5957691F; ///< -2·√(2/π)
constexpr float k_tanh_cubic = 0.044715F;
constexpr float k_tanh_cubic_slope = 0.2140645F; ///< 2·√(2/π) · 3 · 0.044715

/// For results of type Value: gelu(x) = x · share(x), and gelu'(x).
template <typename Value>
struct Gelu {
  /// Φ(x), the normal distribution function.
  __device__ static float share(float x) { return 0.5F * (1 + erff(x * 0.70710678F)); }
  __device__ static float slope(float x) {
    return share(x) + x * k_gelu_peak * expf(-0.5F * x * x);
  }
  /// gelu by tanh is x · σ(2·s), s = √(2/π)·(x + 0.044715·x³).
  __device__ static float tanh_share(float x) { return 1 / (1 + expf(tanh_power(x))); }
  __device__ static float tanh_slope(float x) {
    const float rest = expf(fminf(tanh_power(x), 80)); // Finite.
    return tanh_slope_by(x, rest, 1 / (1 + rest));
  }

  __device__ static float tanh_power(float x) {
    return k_tanh_factor * (x + k_tanh_cubic * x * x * x);
  }
  /// 1 - share = share · rest, without cancellation.
  __device__ static float tanh_slope_by(float x, float rest, float share) {
    return share + x * share * (share * rest) * (k_tanh_cubic_slope * x * x - k_tanh_factor);
  }
};

template <>
struct Gelu<Bf16Value> {
  using Exact = Gelu<float>;

  __device__ static float share(float x) { return share_by(x, bell(x)); }
  __device__ static float slope(float x) {
    const float of_x = bell(x);
    return share_by(x, of_x) + x * k_gelu_peak * of_x;
  }
  __device__ static float tanh_share(float x) {
    return reciprocal(1 + power_of_two(Exact::tanh_power(x) * k_log2_e));
  }
  __device__ static float tanh_slope(float x) {
    constexpr float k_finite = 120;
    const float rest = power_of_two(fminf(Exact::tanh_power(x) * k_log2_e, k_finite));
    return Exact::tanh_slope_by(x, rest, reciprocal(1 + rest));
  }

 private:
  /// exp(-x² / 2)
  __device__ static float bell(float x) { return power_of_two(-0.5F * k_log2_e * x * x); }
  /// Φ(-|x|) = exp(-x² / 2) · P(1 / (1 + 0.42·|x|)): P is a minimax polynomial, by which Φ is wrong
  /// by 1.2e-7 at most, and by 1.2e-4 of its value up to |x| = 14.
  __device__ static float share_by(float x, float of_x) {
    const float t = reciprocal(1 + 0.42F * fabsf(x));
    float sum = 0.05766048F;
    sum = sum * t - 0.23410399F;
    sum = sum * t + 0.25769129F;
    sum = sum * t + 0.07298761F;
    sum = sum * t + 0.17894695F;
    sum = sum * t + 0.16681777F;
    const float tail = sum * t * of_x;
    return x > 0 ? 1 - tail : tail;
  }
};

} // namespace
} // namespace trainer
