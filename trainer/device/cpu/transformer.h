// TransformerKernels over vectors of V::k_lanes floats. What is summed along a row is summed in 16
// lanes, whatever a vector has, so all sets with fused multiply-add give the same bits.
#pragma once

#include "trainer/device/cpu/kernels.h"
#include "trainer/device/cpu/transformer_kernels.h"

namespace trainer {
namespace {

/// Sixteen floats, of one vector or several.
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
using Ints = decltype(typename V::Floats{} > typename V::Floats{}); ///< As many, of 32 bits.

/// e^x to 2 units in the last place, from -87 on; 0 far below.
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

/// Those of 16 values whose bit is set, times `scale`; the others 0.
template <typename V>
inline void drop_some(Sixteen<V>& x, std::uint16_t keep, float scale) {
  Ints<V> lane;
  for (std::size_t i = 0; i < V::k_lanes; ++i) {
    lane[i] = 1 << i;
  }
  x.each([&](typename V::Floats part, std::size_t i) {
    const int bits = keep >> (i * V::k_lanes);
    const Ints<V> kept = (Ints<V>{} + bits) & lane;
    return kept != 0 ? part * V::all(scale) : typename V::Floats{};
  });
}

constexpr std::size_t k_counters = 16; ///< Of philox4x32 at a time.

inline void multiply_words(std::uint32_t factor, const std::uint32_t* by, std::uint32_t* high,
                           std::uint32_t* low) {
  for (std::size_t i = 0; i < k_counters; ++i) {
    const std::uint64_t product = std::uint64_t{factor} * by[i];
    high[i] = static_cast<std::uint32_t>(product >> 32);
    low[i] = static_cast<std::uint32_t>(product);
  }
}

/// As random_at() has them: see trainer/random.h, whose numbers these are.
template <typename V>
void vector_keep_bits(const KeepBits& which, std::size_t words, std::uint16_t* to) {
  constexpr std::uint32_t k_stream = 4; // RandomStream::dropout
  for (std::size_t word = 0; word < words; word += k_counters / 2) {
    std::uint32_t c[4][k_counters];
    std::uint32_t high[2][k_counters];
    std::uint32_t low[2][k_counters];
    for (std::size_t i = 0; i < k_counters; ++i) {
      const std::uint64_t index = which.first + 2 * word + i;
      c[0][i] = static_cast<std::uint32_t>(index);
      c[1][i] = static_cast<std::uint32_t>(index >> 32);
      c[2][i] = which.substream;
      c[3][i] = k_stream;
    }
    auto key0 = static_cast<std::uint32_t>(which.seed);
    auto key1 = static_cast<std::uint32_t>(which.seed >> 32);
    for (int round = 0; round < 10; ++round) {
      multiply_words(0xD2511F53, c[0], high[0], low[0]);
      multiply_words(0xCD9E8D57, c[2], high[1], low[1]);
      for (std::size_t i = 0; i < k_counters; ++i) {
        c[0][i] = high[1][i] ^ c[1][i] ^ key0;
        c[1][i] = low[1][i];
        c[2][i] = high[0][i] ^ c[3][i] ^ key1;
        c[3][i] = low[0][i];
      }
      key0 += 0x9E3779B9;
      key1 += 0xBB67AE85;
    }
    for (std::size_t i = 0; i < k_counters / 2 && word + i < words; ++i) {
      unsigned bits = 0;
      for (std::size_t half = 0; half < 2; ++half) {
        for (std::size_t j = 0; j < 4; ++j) {
          const std::uint32_t number = c[j][2 * i + half];
          bits |= ((number & 0xFFFFU) >= which.threshold ? 1U : 0U) << (8 * half + 2 * j);
          bits |= ((number >> 16) >= which.threshold ? 1U : 0U) << (8 * half + 2 * j + 1);
        }
      }
      to[word + i] = static_cast<std::uint16_t>(bits);
    }
  }
}

template <typename V>
void vector_add_bias(const RowShape& s, const float* bias, float* x) {
  for (std::size_t row = 0; row < s.rows; ++row, x += s.stride) {
    for (std::size_t j = 0; j < s.width; j += V::k_lanes) {
      V::store(x + j, V::load(x + j) + V::load(bias + j));
    }
  }
}

template <typename V>
void vector_sum_rows(const RowShape& s, const float* x, float* to) {
  for (std::size_t row = 0; row < s.rows; ++row, x += s.stride) {
    for (std::size_t j = 0; j < s.width; j += V::k_lanes) {
      V::store(to + j, V::load(to + j) + V::load(x + j));
    }
  }
}

template <typename V>
void vector_gelu(const RowShape& s, const float* bias, float* x, float* y) {
  for (std::size_t row = 0; row < s.rows; ++row, x += s.stride, y += s.stride) {
    for (std::size_t j = 0; j < s.width; j += V::k_lanes) {
      const auto u = V::load(x + j) + V::load(bias + j);
      V::store(x + j, u);
      V::store(y + j, u * phi_of<V>(u));
    }
  }
}

/// gelu'(x)
template <typename V>
inline typename V::Floats gelu_slope(typename V::Floats x) {
  const auto density = V::all(0.39894228F) * exp_of<V>(V::all(-0.5F) * x * x);
  return phi_of<V>(x) + x * density;
}

template <typename V>
void vector_gelu_backward(const RowShape& s, const float* x, float* dy, float* dbias) {
  for (std::size_t row = 0; row < s.rows; ++row, x += s.stride, dy += s.stride) {
    for (std::size_t j = 0; j < s.width; j += V::k_lanes) {
      const auto dx = V::load(dy + j) * gelu_slope<V>(V::load(x + j));
      V::store(dy + j, dx);
      V::store(dbias + j, V::load(dbias + j) + dx);
    }
  }
}

template <typename V>
void vector_drop(const RowShape& s, const Dropped& d, const float* x, float* to) {
  for (std::size_t row = 0; row < s.rows; ++row) {
    for (std::size_t j = 0; j < s.width; j += k_panel) {
      auto value = Sixteen<V>::load(x + row * s.stride + j);
      if (d.keep != nullptr) {
        drop_some<V>(value, d.keep[(row * s.width + j) / k_panel], d.scale);
      }
      value.store(to + row * s.stride + j);
    }
  }
}

template <typename V>
void vector_drop_and_add(const RowShape& s, const Dropped& d, const float* bias,
                         const float* residual, float* x) {
  for (std::size_t row = 0; row < s.rows; ++row, x += s.stride, residual += s.stride) {
    for (std::size_t j = 0; j < s.width; j += k_panel) {
      auto value = Sixteen<V>::load(x + j);
      const auto shift = Sixteen<V>::load(bias + j);
      const auto rest = Sixteen<V>::load(residual + j);
      value.each([&](auto part, std::size_t i) { return part + shift.part[i]; });
      if (d.keep != nullptr) {
        drop_some<V>(value, d.keep[(row * s.width + j) / k_panel], d.scale);
      }
      value.each([&](auto part, std::size_t i) { return part + rest.part[i]; });
      value.store(x + j);
    }
  }
}

template <typename V>
void vector_norm(const RowShape& s, const float* x, const float* gain, const float* shift,
                 float epsilon, float* y, float* moments) {
  const float share = 1.0F / static_cast<float>(s.width);
  for (std::size_t row = 0; row < s.rows; ++row, x += s.stride, y += s.stride) {
    auto sum = Sixteen<V>::all(0);
    for (std::size_t j = 0; j < s.width; j += k_panel) {
      const auto value = Sixteen<V>::load(x + j);
      sum.each([&](auto part, std::size_t i) { return part + value.part[i]; });
    }
    const float mean = sum.sum() * share;
    auto squares = Sixteen<V>::all(0);
    for (std::size_t j = 0; j < s.width; j += k_panel) {
      const auto value = Sixteen<V>::load(x + j);
      squares.each([&](auto part, std::size_t i) {
        const auto off = value.part[i] - V::all(mean);
        return off * off + part;
      });
    }
    const float inverse = 1.0F / __builtin_sqrtf(squares.sum() * share + epsilon);
    for (std::size_t j = 0; j < s.width; j += V::k_lanes) {
      const auto unit = (V::load(x + j) - V::all(mean)) * V::all(inverse);
      V::store(y + j, unit * V::load(gain + j) + V::load(shift + j));
    }
    moments[2 * row] = mean;
    moments[2 * row + 1] = inverse;
  }
}

// With x̂ the normalised row and g = dy · gain: dx = (g - mean(g) - x̂ · mean(g · x̂)) · inverse.
template <typename V>
void vector_norm_backward(const RowShape& s, const float* x, const float* moments,
                          const float* gain, float* dy, float* dgain, float* dshift) {
  const float share = 1.0F / static_cast<float>(s.width);
  for (std::size_t row = 0; row < s.rows; ++row, x += s.stride, dy += s.stride) {
    const auto mean = V::all(moments[2 * row]);
    const auto inverse = V::all(moments[2 * row + 1]);
    auto of_gradient = Sixteen<V>::all(0);
    auto of_product = Sixteen<V>::all(0);
    for (std::size_t j = 0; j < s.width; j += k_panel) {
      for (std::size_t i = 0; i < Sixteen<V>::k_count; ++i) {
        const std::size_t at = j + i * V::k_lanes;
        const auto change = V::load(dy + at);
        const auto unit = (V::load(x + at) - mean) * inverse;
        const auto g = change * V::load(gain + at);
        V::store(dgain + at, V::load(dgain + at) + change * unit);
        V::store(dshift + at, V::load(dshift + at) + change);
        of_gradient.part[i] = of_gradient.part[i] + g;
        of_product.part[i] = of_product.part[i] + g * unit;
      }
    }
    const auto mean_gradient = V::all(of_gradient.sum() * share);
    const auto mean_product = V::all(of_product.sum() * share);
    for (std::size_t j = 0; j < s.width; j += V::k_lanes) {
      const auto unit = (V::load(x + j) - mean) * inverse;
      const auto g = V::load(dy + j) * V::load(gain + j);
      V::store(dy + j, (g - mean_gradient - unit * mean_product) * inverse);
    }
  }
}

template <typename V>
void vector_softmax(const RowShape& s, std::size_t keys, float scale, const Dropped& d, float* x,
                    float* to) {
  const std::size_t whole = keys / k_panel * k_panel;
  for (std::size_t row = 0; row < s.rows; ++row, x += s.stride, to += s.stride) {
    for (std::size_t j = keys; j < s.width; ++j) {
      x[j] = -__builtin_inff();
    }
    const std::size_t end = whole < keys ? whole + k_panel : whole;
    auto most = Sixteen<V>::load(x);
    for (std::size_t j = k_panel; j < end; j += k_panel) {
      const auto value = Sixteen<V>::load(x + j);
      most.each(
          [&](auto part, std::size_t i) { return value.part[i] > part ? value.part[i] : part; });
    }
    const auto largest = V::all(most.largest());
    auto sum = Sixteen<V>::all(0);
    for (std::size_t j = 0; j < end; j += k_panel) {
      auto value = Sixteen<V>::load(x + j);
      value.each([&](auto part, std::size_t /*i*/) {
        return exp_of<V>((part - largest) * V::all(scale));
      });
      value.store(x + j);
      sum.each([&](auto part, std::size_t i) { return part + value.part[i]; });
    }
    const auto share = V::all(1.0F / sum.sum());
    for (std::size_t j = 0; j < s.width; j += k_panel) {
      auto value = j < end ? Sixteen<V>::load(x + j) : Sixteen<V>::all(0);
      value.each([&](auto part, std::size_t /*i*/) { return part * share; });
      value.store(x + j);
      if (d.keep != nullptr) {
        drop_some<V>(value, d.keep[(row * s.width + j) / k_panel], d.scale);
        value.store(to + j);
      } else if (to != x) {
        value.store(to + j);
      }
    }
  }
}

template <typename V>
void vector_softmax_backward(const RowShape& s, float scale, const Dropped& d, const float* x,
                             float* dx) {
  for (std::size_t row = 0; row < s.rows; ++row, x += s.stride, dx += s.stride) {
    auto sum = Sixteen<V>::all(0);
    for (std::size_t j = 0; j < s.width; j += k_panel) {
      auto change = Sixteen<V>::load(dx + j);
      if (d.keep != nullptr) {
        drop_some<V>(change, d.keep[(row * s.width + j) / k_panel], d.scale);
        change.store(dx + j);
      }
      const auto value = Sixteen<V>::load(x + j);
      sum.each([&](auto part, std::size_t i) { return part + value.part[i] * change.part[i]; });
    }
    const auto mean = V::all(sum.sum());
    for (std::size_t j = 0; j < s.width; j += V::k_lanes) {
      V::store(dx + j, (V::load(dx + j) - mean) * V::load(x + j) * V::all(scale));
    }
  }
}

template <typename V>
void vector_log_sum(const RowShape& s, const float* bias, float* x, float* largest, float* sum) {
  for (std::size_t j = 0; j < s.width; j += V::k_lanes) {
    const auto before = V::load(largest + j);
    auto most = before;
    for (std::size_t row = 0; row < s.rows; ++row) {
      float* at = x + row * s.stride + j;
      const auto value = V::load(at) + V::all(bias[row]);
      V::store(at, value);
      most = value > most ? value : most;
    }
    auto total = V::load(sum + j) * exp_of<V>(before - most);
    for (std::size_t row = 0; row < s.rows; ++row) {
      total = total + exp_of<V>(V::load(x + row * s.stride + j) - most);
    }
    V::store(largest + j, most);
    V::store(sum + j, total);
  }
}

template <typename V>
void vector_probabilities(const RowShape& s, const float* log_sum, const float* weight, float* x,
                          float* dbias) {
  for (std::size_t row = 0; row < s.rows; ++row, x += s.stride) {
    auto sum = Sixteen<V>::all(0);
    for (std::size_t j = 0; j < s.width; j += k_panel) {
      auto value = Sixteen<V>::load(x + j);
      const auto from = Sixteen<V>::load(log_sum + j);
      const auto factor = Sixteen<V>::load(weight + j);
      value.each([&](auto part, std::size_t i) {
        return exp_of<V>(part - from.part[i]) * factor.part[i];
      });
      value.store(x + j);
      sum.each([&](auto part, std::size_t i) { return part + value.part[i]; });
    }
    dbias[row] += sum.sum();
  }
}

inline void plain_pack_transposed(const RowShape& s, const float* from, float* to) {
  for (std::size_t row = 0; row < s.rows; row += k_panel, to += s.width * k_panel) {
    const std::size_t count = s.rows - row < k_panel ? s.rows - row : k_panel;
    for (std::size_t j = 0; j < s.width; ++j) {
      for (std::size_t i = 0; i < k_panel; ++i) {
        to[j * k_panel + i] = i < count ? from[(row + i) * s.stride + j] : 0.0F;
      }
    }
  }
}

inline void plain_transpose_panels(std::size_t outputs, std::size_t inputs, const float* from,
                                   float* to) {
  for (std::size_t o = 0; o < outputs; o += k_panel) {
    for (std::size_t i = 0; i < inputs; i += k_panel) {
      const float* block = from + (o / k_panel * inputs + i) * k_panel;
      float* turned = to + (i / k_panel * outputs + o) * k_panel;
      for (std::size_t a = 0; a < k_panel; ++a) {
        for (std::size_t b = 0; b < k_panel; ++b) {
          turned[a * k_panel + b] = block[b * k_panel + a];
        }
      }
    }
  }
}

template <typename V>
constexpr TransformerKernels transformer_kernels() {
  return {
      vector_keep_bits<V>,     vector_add_bias<V>,    vector_sum_rows<V>,         vector_gelu<V>,
      vector_gelu_backward<V>, vector_drop<V>,        vector_drop_and_add<V>,     vector_norm<V>,
      vector_norm_backward<V>, vector_softmax<V>,     vector_softmax_backward<V>, vector_log_sum<V>,
      vector_probabilities<V>, plain_pack_transposed, plain_transpose_panels};
}

} // namespace
} // namespace trainer
