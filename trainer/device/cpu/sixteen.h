// Sixteen floats, of one vector or several, and functions of vectors. What is summed along a row is
// summed in 16 lanes, whatever a vector has, so all sets with fused multiply-add give the same
// bits.
//
// Nothing here calls an inline function of a library: see vector.h.
#pragma once

#include "trainer/device/cpu/kernels.h"
#include "trainer/device/cpu/lanes.h"

namespace trainer {
namespace {

/// Sixteen floats, in one or more vectors.
template <typename V>
struct Sixteen {
  static constexpr std::size_t k_count = k_panel / V::k_lanes;
  using Floats = typename V::Floats;
  Floats part[k_count];

  static Sixteen load(const float* from) {
    Sixteen x;
    for (std::size_t i = 0; i < k_count; ++i) {
      x.part[i] = V::load(from + i * V::k_lanes);
    }
    return x;
  }
  /// The first `count` of them, or all; behind them `rest`.
  static Sixteen load_some(const float* from, std::size_t count, float rest = 0) {
    if (count >= k_panel) {
      return load(from);
    }
    float values[k_panel];
    for (std::size_t i = 0; i < k_panel; ++i) {
      values[i] = i < count ? from[i] : rest;
    }
    return load(values);
  }
  static Sixteen all(float value) {
    Sixteen x;
    for (Floats& part : x.part) {
      part = V::all(value);
    }
    return x;
  }
  void store(float* to) const {
    for (std::size_t i = 0; i < k_count; ++i) {
      V::store(to + i * V::k_lanes, part[i]);
    }
  }
  void store_some(float* to, std::size_t count) const {
    if (count >= k_panel) {
      store(to);
      return;
    }
    float values[k_panel];
    store(values);
    __builtin_memcpy(to, values, count * sizeof(float));
  }
  template <typename F>
  Sixteen& each(const F& change) {
    for (std::size_t i = 0; i < k_count; ++i) {
      part[i] = change(part[i], i);
    }
    return *this;
  }
  float sum() const {
    float lanes[k_panel];
    store(lanes);
    for (std::size_t half = k_panel / 2; half > 0; half /= 2) {
      for (std::size_t i = 0; i < half; ++i) {
        lanes[i] += lanes[i + half];
      }
    }
    return lanes[0];
  }
  float largest() const {
    float lanes[k_panel];
    store(lanes);
    float most = lanes[0];
    for (const float lane : lanes) {
      most = lane > most ? lane : most;
    }
    return most;
  }
};

template <typename V>
using Ints = decltype(typename V::Floats{} >
                      typename V::Floats{}); ///< As many integers of 32 bits.

/// Rounds to the nearest bf16, ties to even; infinities and NaNs are kept.
template <typename V>
inline typename V::Floats nearest_bf16(typename V::Floats x) {
  using F = typename V::Floats;
  constexpr int k_dropped = 16;
  constexpr int k_size = 0x7fffffff;
  constexpr int k_infinity = 0x7f800000;
  const auto bits = (Ints<V>)x;
  const Ints<V> up = bits + ((bits >> k_dropped & 1) + 0x7fff);
  return (bits & k_size) > k_infinity ? x : (F)(up & ~0xffff);
}

/// e^x to 2 ulp for x ≥ -87; 0 far below.
template <typename V>
inline typename V::Floats exp_of(typename V::Floats x) {
  using F = typename V::Floats;
  const F least = V::all(-87.0F);
  const F most = V::all(88.0F);
  const auto is_nothing = V::all(-103.0F) > x;
  x = least > x ? least : x;
  x = x > most ? most : x;
  // x = n·ln 2 + r: what is added has its last bit at 1, so the sum's low bits are n.
  const F shifter = V::all(12582912.0F);
  const F shifted = x * V::all(1.44269504F) + shifter;
  const F n = shifted - shifter;
  F r = x - n * V::all(0.693359375F);
  r = r + n * V::all(2.12194440e-4F);
  F p = V::all(1.9875691500e-4F);
  p = p * r + V::all(1.3981999507e-3F);
  p = p * r + V::all(8.3334519073e-3F);
  p = p * r + V::all(4.1665795894e-2F);
  p = p * r + V::all(1.6666665459e-1F);
  p = p * r + V::all(5.0000001201e-1F);
  p = p * (r * r) + r + V::all(1.0F);
  constexpr int k_mantissa = 23;
  const Ints<V> bits = (Ints<V>)p + ((Ints<V>)shifted << k_mantissa);
  return is_nothing ? F{} : (F)bits;
}

/// Φ(x), of the normal distribution: (1 + erf(x / √2)) / 2, erf as a quotient of polynomials.
template <typename V>
inline typename V::Floats phi_of(typename V::Floats x) {
  using F = typename V::Floats;
  const F most = V::all(4.0F);
  F z = x * V::all(0.70710678F);
  z = z > most ? most : z;
  z = -most > z ? -most : z;
  const F s = z * z;
  F a = V::all(-2.72614225801306e-10F);
  a = a * s + V::all(2.77068142495902e-08F);
  a = a * s + V::all(-2.10102402082508e-06F);
  a = a * s + V::all(-5.69250639462346e-05F);
  a = a * s + V::all(-7.34990630326855e-04F);
  a = a * s + V::all(-2.95459980854025e-03F);
  a = a * s + V::all(-1.60960333262415e-02F);
  F b = V::all(-1.45660718464996e-05F);
  b = b * s + V::all(-2.13374055278905e-04F);
  b = b * s + V::all(-1.68282697438203e-03F);
  b = b * s + V::all(-7.37332916720468e-03F);
  b = b * s + V::all(-1.42647390514189e-02F);
  return V::all(0.5F) + V::all(0.5F) * (z * a / b);
}

/// gelu'(x)
template <typename V>
inline typename V::Floats gelu_slope(typename V::Floats x) {
  const auto density = V::all(0.39894228F) * exp_of<V>(V::all(-0.5F) * x * x);
  return phi_of<V>(x) + x * density;
}

// gelu by tanh is x · σ(2·s), s = √(2/π)·(x + 0.044715·x³), as (1 + tanh(s)) / 2 = σ(2·s).

template <typename V>
inline typename V::Floats gelu_share(typename V::Floats x) {
  const auto twice = V::all(1.5957691F) * (x + V::all(0.044715F) * x * x * x);
  return V::all(1.0F) / (V::all(1.0F) + exp_of<V>(V::all(0) - twice));
}

template <typename V>
inline typename V::Floats gelu_tanh_slope(typename V::Floats x) {
  const auto one = V::all(1.0F);
  const auto twice = V::all(1.5957691F) * (x + V::all(0.044715F) * x * x * x);
  const auto rest = exp_of<V>(V::all(0) - twice);
  const auto share = one / (one + rest); // And 1 - share is share · rest, with no bits lost.
  const auto steep = V::all(1.5957691F) + V::all(0.2140645F) * x * x; // 3 · 0.044715 · 1.5957691
  return share + x * share * (share * rest) * steep;
}

} // namespace
} // namespace trainer
