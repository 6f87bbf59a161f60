// GELU in float64: x · Φ(x), and its approximation by tanh.
#pragma once

#include <cmath>

namespace trainer::test {

inline double phi(double x) { return std::erfc(-x / std::sqrt(2.0)) / 2; }
inline double gelu_slope_at(double x) {
  constexpr double k_peak = 0.3989422804014327; // 1 / √(2π)
  return phi(x) + x * k_peak * std::exp(-x * x / 2);
}

inline double gelu_share_at(double x) {
  return (1 + std::tanh(std::sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x))) / 2;
}
/// By a difference of what is smooth.
inline double gelu_tanh_slope_at(double x) {
  constexpr double k_step = 1e-5;
  return ((x + k_step) * gelu_share_at(x + k_step) - (x - k_step) * gelu_share_at(x - k_step)) /
         (2 * k_step);
}

} // namespace trainer::test
