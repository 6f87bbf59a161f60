// TextKernels (device/text_kernels.h) over vectors of V::k_lanes floats, and what attention is made
// of beside products.
//
// Nothing here calls an inline function of a library: see vector.h.
#pragma once

#include "trainer/device/cpu/of_floats.h"
#include "trainer/device/cpu/sixteen.h"
#include "trainer/device/cpu/text.h"

namespace trainer {
namespace {

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

/// The bits of as many counters of philox4x32 as a vector holds, from `index` on: 8 a counter. Each
/// word of 32 bits is the lower half of a lane of 64, whose upper half is anything.
template <typename V>
inline typename V::Longs keep_bits_at(const KeepBits& which, std::uint64_t index) {
  using Longs = typename V::Longs;
  constexpr std::uint32_t k_stream = 4; // RandomStream::dropout
  Longs c0 = Longs{} + index;
  for (std::size_t i = 0; i < V::k_lanes / 2; ++i) {
    c0[i] += i;
  }
  Longs c1 = c0 >> 32;
  Longs c2 = Longs{} + which.substream;
  Longs c3 = Longs{} + k_stream;
  auto key0 = static_cast<std::uint32_t>(which.seed);
  auto key1 = static_cast<std::uint32_t>(which.seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const Longs of0 = V::product(Longs{} + 0xD2511F53, c0);
    const Longs of2 = V::product(Longs{} + 0xCD9E8D57, c2);
    c0 = (of2 >> 32) ^ c1 ^ key0;
    c1 = of2;
    c2 = (of0 >> 32) ^ c3 ^ key1;
    c3 = of0;
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  const Longs words[] = {c0, c1, c2, c3};
  const std::uint64_t carries = 0x10000 - which.threshold; // Into bit 16, from the threshold on.
  Longs bits{};
  for (int j = 0; j < 4; ++j) {
    bits |= ((words[j] & 0xFFFF) + carries) >> 16 << (2 * j);
    bits |= ((words[j] >> 16 & 0xFFFF) + carries) >> 16 << (2 * j + 1);
  }
  return bits;
}

/// As random_at() has them: see trainer/random.h, whose numbers these are.
template <typename V>
void vector_keep_bits(Stream& /*stream*/, const KeepBits& which, std::size_t words,
                      std::uint16_t* to) {
  constexpr std::size_t k_words = V::k_lanes / 4; // Two counters each.
  for (std::size_t word = 0; word < words; word += k_words) {
    const auto bits = keep_bits_at<V>(which, which.first + 2 * word);
    for (std::size_t i = 0; i < k_words && word + i < words; ++i) {
      to[word + i] = static_cast<std::uint16_t>(bits[2 * i] | bits[2 * i + 1] << 8);
    }
  }
}

template <typename V>
inline void drop_at(Sixteen<V>& x, const Dropped& d, std::size_t word) {
  if (d.keep != nullptr) {
    drop_some<V>(x, d.keep[word], d.scale);
  }
}

/// Calls `each` with the first value of each word of keep bits, the number of its values, and its
/// own.
template <typename Each>
inline void for_keep_words(const DropShape& s, const Each& each) {
  std::size_t word = 0;
  for (std::size_t row = 0; row < s.rows; ++row) {
    for (std::size_t j = 0; j < s.width; j += k_keep_bits) {
      each(row * s.width + j, s.width - j < k_keep_bits ? s.width - j : k_keep_bits, word++);
    }
  }
}

template <typename V>
void vector_drop(Stream& /*stream*/, const DropShape& s, const Dropped& d, const float* x,
                 float* to) {
  for_keep_words(s, [&](std::size_t i, std::size_t count, std::size_t word) {
    auto value = Sixteen<V>::load_some(x + i, count);
    drop_at<V>(value, d, word);
    value.store_some(to + i, count);
  });
}

template <typename V>
void vector_drop_and_add(Stream& /*stream*/, const DropShape& s, const Dropped& d,
                         const float* residual, float* x) {
  for_keep_words(s, [&](std::size_t i, std::size_t count, std::size_t word) {
    auto value = Sixteen<V>::load_some(x + i, count);
    const auto rest = Sixteen<V>::load_some(residual + i, count);
    drop_at<V>(value, d, word);
    value.each([&](auto part, std::size_t j) { return part + rest.part[j]; });
    value.store_some(x + i, count);
  });
}

template <typename V>
void vector_embed(Stream& /*stream*/, const TextShape& s, const std::int32_t* ids,
                  const float* words, const float* type, const float* positions, float* to) {
  for (std::size_t token = 0; token < s.tokens(); ++token, to += s.width) {
    const float* word = words + static_cast<std::size_t>(ids[token]) * s.width;
    const float* position = positions + token % s.length * s.width;
    for (std::size_t i = 0; i < s.width; i += V::k_lanes) {
      const std::size_t count = s.width - i;
      auto sum = load_some<V>(word + i, count) + load_some<V>(position + i, count);
      if (type != nullptr) {
        sum = sum + load_some<V>(type + i, count);
      }
      store_some<V>(to + i, sum, count);
    }
  }
}

template <typename V>
inline void add_row(std::size_t width, const float* from, float* to) {
  for (std::size_t i = 0; i < width; i += V::k_lanes) {
    const std::size_t count = width - i;
    store_some<V>(to + i, load_some<V>(to + i, count) + load_some<V>(from + i, count), count);
  }
}

template <typename V>
void vector_embed_backward(Stream& /*stream*/, const TextShape& s, const std::int32_t* ids,
                           const float* dy, float* dwords, float* dtype, float* dpositions) {
  for (std::size_t token = 0; token < s.tokens(); ++token, dy += s.width) {
    add_row<V>(s.width, dy, dwords + static_cast<std::size_t>(ids[token]) * s.width);
    if (dtype != nullptr) {
      add_row<V>(s.width, dy, dtype);
    }
    add_row<V>(s.width, dy, dpositions + token % s.length * s.width);
  }
}

/// `load` (row, j): the row's 16 values from column `j` on, zeros past its end.
template <typename V, typename Load>
inline void normalise_rows(const NormShape& s, const float* x, const float* gain,
                           const float* shift, float* y, float* moments, const Load& load) {
  const float share = 1.0F / static_cast<float>(s.width);
  for (std::size_t row = 0; row < s.rows; ++row, x += s.width, y += s.width) {
    auto sum = Sixteen<V>::all(0);
    for (std::size_t j = 0; j < s.width; j += k_panel) {
      const auto value = load(row, j);
      sum.each([&](auto part, std::size_t i) { return part + value.part[i]; });
    }
    const float mean = sum.sum() * share;
    auto squares = Sixteen<V>::all(0);
    for (std::size_t j = 0; j < s.width; j += k_panel) {
      const auto value = Sixteen<V>::load_some(x + j, s.width - j, mean);
      squares.each([&](auto part, std::size_t i) {
        const auto off = value.part[i] - V::all(mean);
        return off * off + part;
      });
    }
    const float inverse = 1.0F / __builtin_sqrtf(squares.sum() * share + s.epsilon);
    for (std::size_t j = 0; j < s.width; j += V::k_lanes) {
      const std::size_t count = s.width - j;
      const auto unit = (load_some<V>(x + j, count) - V::all(mean)) * V::all(inverse);
      store_some<V>(y + j, unit * load_some<V>(gain + j, count) + load_some<V>(shift + j, count),
                    count);
    }
    moments[2 * row] = mean;
    moments[2 * row + 1] = inverse;
  }
}

template <typename V>
void vector_norm(Stream& /*stream*/, const NormShape& s, const float* x, const float* gain,
                 const float* shift, float* y, float* moments) {
  normalise_rows<V>(s, x, gain, shift, y, moments, [&](std::size_t row, std::size_t j) {
    return Sixteen<V>::load_some(x + row * s.width + j, s.width - j);
  });
}

template <typename V>
void vector_add_and_norm(Stream& /*stream*/, const NormShape& s, const Dropped& d,
                         const float* residual, float* x, const float* gain, const float* shift,
                         float* y, float* moments) {
  normalise_rows<V>(s, x, gain, shift, y, moments, [&](std::size_t row, std::size_t j) {
    float* const at = x + row * s.width + j;
    auto value = Sixteen<V>::load_some(at, s.width - j);
    const auto rest = Sixteen<V>::load_some(residual + row * s.width + j, s.width - j);
    drop_at<V>(value, d, row * keep_words(s.width) + j / k_keep_bits);
    value.each([&](auto part, std::size_t i) { return part + rest.part[i]; });
    value.store_some(at, s.width - j);
    return value;
  });
}

// With x̂ the normalised row and g = dy · gain: dx = (g - mean(g) - x̂ · mean(g · x̂)) · inverse.
template <typename V>
void vector_norm_backward(Stream& /*stream*/, const NormShape& s, const float* x,
                          const float* moments, const float* gain, bool accumulate, float* dy,
                          float* onto, float* dgain, float* dshift) {
  const float share = 1.0F / static_cast<float>(s.width);
  if (!accumulate) {
    __builtin_memset(dgain, 0, s.width * sizeof(float));
    __builtin_memset(dshift, 0, s.width * sizeof(float));
  }
  for (std::size_t row = 0; row < s.rows; ++row, x += s.width, dy += s.width) {
    const auto mean = V::all(moments[2 * row]);
    const auto inverse = V::all(moments[2 * row + 1]);
    auto of_gradient = Sixteen<V>::all(0);
    auto of_product = Sixteen<V>::all(0);
    for (std::size_t j = 0; j < s.width; j += k_panel) {
      for (std::size_t i = 0; i < Sixteen<V>::k_count; ++i) {
        const std::size_t at = j + i * V::k_lanes;
        const std::size_t count = at < s.width ? s.width - at : 0;
        const auto change = load_some<V>(dy + at, count);
        const auto unit = (load_some<V>(x + at, count) - mean) * inverse;
        const auto g = change * load_some<V>(gain + at, count);
        store_some<V>(dgain + at, load_some<V>(dgain + at, count) + change * unit, count);
        store_some<V>(dshift + at, load_some<V>(dshift + at, count) + change, count);
        of_gradient.part[i] = of_gradient.part[i] + g;
        of_product.part[i] = of_product.part[i] + g * unit;
      }
    }
    const auto mean_gradient = V::all(of_gradient.sum() * share);
    const auto mean_product = V::all(of_product.sum() * share);
    float* const to = onto == nullptr ? dy : onto + row * s.width;
    for (std::size_t j = 0; j < s.width; j += V::k_lanes) {
      const std::size_t count = s.width - j;
      const auto unit = (load_some<V>(x + j, count) - mean) * inverse;
      const auto g = load_some<V>(dy + j, count) * load_some<V>(gain + j, count);
      const auto dx = (g - mean_gradient - unit * mean_product) * inverse;
      store_some<V>(to + j, onto == nullptr ? dx : load_some<V>(to + j, count) + dx, count);
    }
  }
}

template <typename V>
void vector_gelu_backward(Stream& /*stream*/, std::size_t n, const float* x, float* dy) {
  for (std::size_t i = 0; i < n; i += V::k_lanes) {
    store_some<V>(dy + i, load_some<V>(dy + i, n - i) * gelu_slope<V>(load_some<V>(x + i, n - i)),
                  n - i);
  }
}

/// x = e^(scale · (x - the largest)), of x's first `count` values, at least one; their sum.
template <typename V>
inline float exponentials(std::size_t count, float scale, float largest, float* x) {
  const auto most = V::all(largest);
  auto sum = Sixteen<V>::all(0);
  for (std::size_t j = 0; j < count; j += k_panel) {
    auto value = Sixteen<V>::load_some(x + j, count - j, -__builtin_inff());
    value.each(
        [&](auto part, std::size_t /*i*/) { return exp_of<V>((part - most) * V::all(scale)); });
    value.store_some(x + j, count - j);
    sum.each([&](auto part, std::size_t i) { return part + value.part[i]; });
  }
  return sum.sum();
}

template <typename V>
inline float largest_of(std::size_t count, const float* x) {
  auto most = Sixteen<V>::load_some(x, count, -__builtin_inff());
  for (std::size_t j = k_panel; j < count; j += k_panel) {
    const auto value = Sixteen<V>::load_some(x + j, count - j, -__builtin_inff());
    most.each(
        [&](auto part, std::size_t i) { return value.part[i] > part ? value.part[i] : part; });
  }
  return most.largest();
}

template <typename V>
void vector_softmax(const AttentionLines& s, const Dropped& d, float* x, float* to) {
  const std::size_t words = (s.width + k_panel - 1) / k_panel;
  for (std::size_t line = 0; line < s.lines; ++line, x += s.width) {
    const std::size_t keys = s.keys_of(line);
    const float sum = exponentials<V>(keys, s.scale, largest_of<V>(keys, x), x);
    const auto share = V::all(1.0F / sum);
    for (std::size_t j = 0; j < s.keys; j += k_panel) {
      auto value = j < keys ? Sixteen<V>::load_some(x + j, keys - j) : Sixteen<V>::all(0);
      value.each([&](auto part, std::size_t /*i*/) { return part * share; });
      value.store_some(x + j, s.keys - j);
      if (d.keep != nullptr) {
        drop_some<V>(value, d.keep[line * words + j / k_panel], d.scale);
        value.store_some(to + line * s.width + j, s.keys - j);
      }
    }
  }
}

template <typename V>
void vector_softmax_backward(const AttentionLines& s, const Dropped& d, const float* x, float* dx,
                             float* to) {
  const std::size_t words = (s.width + k_panel - 1) / k_panel;
  for (std::size_t line = 0; line < s.lines; ++line, x += s.width, dx += s.width) {
    auto sum = Sixteen<V>::all(0);
    for (std::size_t j = 0; j < s.keys; j += k_panel) {
      auto change = Sixteen<V>::load_some(dx + j, s.keys - j);
      const auto value = Sixteen<V>::load_some(x + j, s.keys - j);
      if (d.keep != nullptr) {
        const std::uint16_t keep = d.keep[line * words + j / k_panel];
        drop_some<V>(change, keep, d.scale);
        change.store_some(dx + j, s.keys - j);
        auto kept = value;
        drop_some<V>(kept, keep, d.scale);
        kept.store_some(to + line * s.width + j, s.keys - j);
      }
      sum.each([&](auto part, std::size_t i) { return part + value.part[i] * change.part[i]; });
    }
    const auto mean = V::all(sum.sum());
    for (std::size_t j = 0; j < s.keys; j += V::k_lanes) {
      const std::size_t count = s.keys - j;
      store_some<V>(dx + j,
                    (load_some<V>(dx + j, count) - mean) * load_some<V>(x + j, count) *
                        V::all(s.scale),
                    count);
    }
  }
}

template <typename V>
void vector_cross_entropy(Stream& /*stream*/, const MaskedShape& s, const std::int32_t* masked,
                          const std::int32_t* targets, const float* scale, float* logits,
                          Score* score) {
  for (std::size_t slot = 0; slot < s.slots(); ++slot) {
    float* z = logits + slot * s.width; // A CPU's lie on end.
    if (masked[slot] < 0) {
      __builtin_memset(z, 0, s.width * sizeof(float));
      continue;
    }
    const std::size_t first = slot / s.most_masked * s.most_masked;
    int count = 0;
    for (std::size_t i = 0; i < s.most_masked; ++i) {
      count += masked[first + i] >= 0 ? 1 : 0;
    }
    float& target = z[targets[slot]];
    const float largest = largest_of<V>(s.width, z);
    const float shifted = target - largest;
    const float sum = exponentials<V>(s.width, 1, largest, z);
    score->loss += double{__builtin_logf(sum)} - double{shifted};
    score->correct += shifted >= 0 ? 1 : 0;
    ++score->count;
    if (scale == nullptr) {
      continue;
    }
    const float weight = *scale / static_cast<float>(count);
    const auto share = V::all(weight / sum);
    for (std::size_t j = 0; j < s.width; j += V::k_lanes) {
      store_some<V>(z + j, load_some<V>(z + j, s.width - j) * share, s.width - j);
    }
    target -= weight;
  }
}

template <typename V>
constexpr AttentionParts attention_parts() {
  return {vector_softmax<V>, vector_softmax_backward<V>};
}

template <typename V>
inline constexpr TextKernels k_text_kernels = {vector_keep_bits<V>,
                                               OfFloats<vector_drop<V>>{},
                                               OfFloats<vector_drop_and_add<V>>{},
                                               OfFloats<vector_embed<V>>{},
                                               OfFloats<vector_embed_backward<V>>{},
                                               OfFloats<vector_norm<V>>{},
                                               OfFloats<vector_add_and_norm<V>>{},
                                               OfFloats<vector_norm_backward<V>>{},
                                               OfFloats<vector_gelu_backward<V>>{},
                                               OfFloats<text_attention>{},
                                               OfFloats<text_attention_backward>{},
                                               text_attention_room,
                                               OfFloats<text_gather_masked>{},
                                               OfFloats<text_scatter_masked>{},
                                               OfFloats<vector_cross_entropy<V>>{}};

} // namespace
} // namespace trainer
