#include "trainer/device/cpu/plain_text.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "trainer/device/cpu/cpu_device.h"
#include "trainer/device/kernels.h"
#include "trainer/random.h"

namespace trainer {
namespace {

void text_keep_bits(Stream& /*stream*/, const KeepBits& which, std::size_t words,
                    std::uint16_t* to) {
  for (std::size_t word = 0; word < words; ++word) {
    std::uint32_t bits = 0;
    for (std::size_t half = 0; half < 2; ++half) {
      const auto numbers = random_at(which.seed, RandomStream::dropout, which.substream,
                                     which.first + 2 * word + half);
      for (std::size_t bit = 0; bit < k_keep_bits / 2; ++bit) {
        const std::uint32_t number = numbers[bit / 2] >> (bit % 2 * 16) & 0xFFFFU;
        bits |= (number >= which.threshold ? 1U : 0U) << (half * k_keep_bits / 2 + bit);
      }
    }
    to[word] = static_cast<std::uint16_t>(bits);
  }
}

/// What value `i` of a line is multiplied by, whose words begin at `word`.
float text_factor(const Dropped& dropped, std::size_t word, std::size_t i) {
  return dropped.keep == nullptr                                               ? 1
         : (dropped.keep[word + i / k_keep_bits] >> i % k_keep_bits & 1U) != 0 ? dropped.scale
                                                                               : 0;
}

void text_drop(Stream& /*stream*/, std::size_t n, const Dropped& dropped, const float* x,
               float* to) {
  for (std::size_t i = 0; i < n; ++i) {
    to[i] = x[i] * text_factor(dropped, 0, i);
  }
}

void text_drop_and_add(Stream& /*stream*/, std::size_t n, const Dropped& dropped,
                       const float* residual, float* x) {
  for (std::size_t i = 0; i < n; ++i) {
    x[i] = x[i] * text_factor(dropped, 0, i) + residual[i];
  }
}

void text_embed(Stream& /*stream*/, const TextShape& s, const std::int32_t* ids, const float* words,
                const float* type, const float* positions, float* to) {
  for (std::size_t token = 0; token < s.tokens(); ++token) {
    const float* word = words + static_cast<std::size_t>(ids[token]) * s.width;
    const float* position = positions + token % s.length * s.width;
    for (std::size_t i = 0; i < s.width; ++i) {
      to[token * s.width + i] = word[i] + type[i] + position[i];
    }
  }
}

void text_embed_backward(Stream& /*stream*/, const TextShape& s, const std::int32_t* ids,
                         const float* dy, float* dwords, float* dtype, float* dpositions) {
  for (std::size_t token = 0; token < s.tokens(); ++token) {
    for (std::size_t i = 0; i < s.width; ++i) {
      const float change = dy[token * s.width + i];
      dwords[static_cast<std::size_t>(ids[token]) * s.width + i] += change;
      dtype[i] += change;
      dpositions[token % s.length * s.width + i] += change;
    }
  }
}

void text_norm(Stream& /*stream*/, const NormShape& s, const float* x, const float* gain,
               const float* shift, float* y, float* moments) {
  const auto width = static_cast<double>(s.width);
  for (std::size_t row = 0; row < s.rows; ++row, x += s.width, y += s.width) {
    double sum = 0;
    for (std::size_t i = 0; i < s.width; ++i) {
      sum += double{x[i]};
    }
    const double mean = sum / width;
    double squares = 0;
    for (std::size_t i = 0; i < s.width; ++i) {
      squares += (double{x[i]} - mean) * (double{x[i]} - mean);
    }
    const double inverse = 1 / std::sqrt(squares / width + double{s.epsilon});
    for (std::size_t i = 0; i < s.width; ++i) {
      y[i] = static_cast<float>((double{x[i]} - mean) * inverse) * gain[i] + shift[i];
    }
    moments[2 * row] = static_cast<float>(mean);
    moments[2 * row + 1] = static_cast<float>(inverse);
  }
}

// With x̂ the normalised row and g = dy · gain: dx = (g - mean(g) - x̂ · mean(g · x̂)) · inverse.
void text_norm_backward(Stream& /*stream*/, const NormShape& s, const float* x,
                        const float* moments, const float* gain, bool accumulate, float* dy,
                        float* dgain, float* dshift) {
  if (!accumulate) {
    std::fill_n(dgain, s.width, 0.0F);
    std::fill_n(dshift, s.width, 0.0F);
  }
  const auto width = static_cast<double>(s.width);
  for (std::size_t row = 0; row < s.rows; ++row, x += s.width, dy += s.width) {
    const float mean = moments[2 * row];
    const float inverse = moments[2 * row + 1];
    double of_gradient = 0;
    double of_product = 0;
    for (std::size_t i = 0; i < s.width; ++i) {
      const float unit = (x[i] - mean) * inverse;
      dgain[i] += dy[i] * unit;
      dshift[i] += dy[i];
      of_gradient += double{dy[i]} * double{gain[i]};
      of_product += double{dy[i]} * double{gain[i]} * double{unit};
    }
    const auto mean_gradient = static_cast<float>(of_gradient / width);
    const auto mean_product = static_cast<float>(of_product / width);
    for (std::size_t i = 0; i < s.width; ++i) {
      const float unit = (x[i] - mean) * inverse;
      dy[i] = (dy[i] * gain[i] - mean_gradient - unit * mean_product) * inverse;
    }
  }
}

/// Φ(x), of the normal distribution.
float text_phi(float x) { return 0.5F * (1 + std::erf(x * (std::numbers::sqrt2_v<float> / 2))); }

void text_gelu_backward(Stream& /*stream*/, std::size_t n, const float* x, float* dy) {
  constexpr float k_peak = 0.39894228F; // 1 / √(2π)
  for (std::size_t i = 0; i < n; ++i) {
    dy[i] *= text_phi(x[i]) + x[i] * k_peak * std::exp(-0.5F * x[i] * x[i]);
  }
}

/// A row's products of heads: rows of (N, H) are so far apart, of (A, T, T) they lie on end.
Matmul of_heads(const AttentionShape& s, const float* a, const float* b, float* c) {
  return {.m = s.length,
          .n = s.depth,
          .k = s.length,
          .a = a,
          .b = b,
          .c = c,
          .b_row = s.width(),
          .c_row = s.width(),
          .batch = s.heads,
          .a_batch = s.length * s.length,
          .b_batch = s.depth,
          .c_batch = s.depth};
}

/// c (A, T, T) = a · bᵀ
Matmul of_pairs(const AttentionShape& s, const float* a, const float* b, float* c) {
  return {.m = s.length,
          .n = s.length,
          .k = s.depth,
          .b_is_turned = true,
          .a = a,
          .b = b,
          .c = c,
          .a_row = s.width(),
          .b_row = s.width(),
          .batch = s.heads,
          .a_batch = s.depth,
          .b_batch = s.depth,
          .c_batch = s.length * s.length};
}

void text_attention(Stream& stream, const AttentionShape& s, const std::int32_t* lengths,
                    const Dropped& dropped, const Heads<const float>& of, float* p,
                    float* context) {
  const float scale = 1 / std::sqrt(static_cast<float>(s.depth));
  const std::size_t lines = s.heads * s.length; // A row's.
  std::vector<float> shares(lines * s.length);
  for (std::size_t row = 0; row < s.rows; ++row) {
    const std::size_t first = row * s.length * s.width();
    const auto keys = static_cast<std::size_t>(std::max(lengths[row], 1));
    float* to = p + row * lines * s.length;
    CpuStream::multiply(stream, of_pairs(s, of.query + first, of.key + first, to));
    for (std::size_t line = 0; line < lines; ++line, to += s.length) {
      const float largest = *std::max_element(to, to + keys);
      float sum = 0;
      for (std::size_t j = 0; j < keys; ++j) {
        to[j] = std::exp((to[j] - largest) * scale);
        sum += to[j];
      }
      std::fill(to + keys, to + s.length, 0.0F);
      for (std::size_t j = 0; j < s.length; ++j) {
        to[j] /= sum;
        shares[line * s.length + j] =
            to[j] * text_factor(dropped, (row * lines + line) * s.words_a_line(), j);
      }
    }
    CpuStream::multiply(stream, of_heads(s, shares.data(), of.value + first, context + first));
  }
}

// With q, k, v and p of a head and d what dropout multiplies by: dv = (p·d)ᵀ·dc, dp = (dc·vᵀ)·d,
// ds = (dp - Σ p·dp)·p·scale, dq = ds·k and dk = dsᵀ·q.
void text_attention_backward(Stream& stream, const AttentionShape& s, const Dropped& dropped,
                             const Heads<const float>& of, const float* p, const float* dcontext,
                             float* room, const Heads<float>& changes) {
  const float scale = 1 / std::sqrt(static_cast<float>(s.depth));
  const std::size_t lines = s.heads * s.length;
  std::vector<float> shares(lines * s.length);
  for (std::size_t row = 0; row < s.rows; ++row) {
    const std::size_t first = row * s.length * s.width();
    const float* const dc = dcontext + first;
    CpuStream::multiply(stream, of_pairs(s, dc, of.value + first, room));
    for (std::size_t line = 0; line < lines; ++line, p += s.length) {
      float* const dp = room + line * s.length;
      float mean = 0;
      for (std::size_t j = 0; j < s.length; ++j) {
        const float factor = text_factor(dropped, (row * lines + line) * s.words_a_line(), j);
        shares[line * s.length + j] = p[j] * factor;
        dp[j] *= factor;
        mean += p[j] * dp[j];
      }
      for (std::size_t j = 0; j < s.length; ++j) {
        dp[j] = (dp[j] - mean) * p[j] * scale;
      }
    }
    CpuStream::multiply(stream, of_heads(s, room, of.key + first, changes.query + first));
    Matmul turned = of_heads(s, shares.data(), dc, changes.value + first);
    turned.a_is_turned = true;
    CpuStream::multiply(stream, turned);
    turned = of_heads(s, room, of.query + first, changes.key + first);
    turned.a_is_turned = true;
    CpuStream::multiply(stream, turned);
  }
}

/// Calls `each` with a slot that has a token, and with that one's number.
template <typename Each>
void for_slots(const MaskedShape& s, const std::int32_t* masked, const Each& each) {
  for (std::size_t slot = 0; slot < s.slots(); ++slot) {
    if (masked[slot] >= 0) {
      each(slot, slot / s.most_masked * s.length + static_cast<std::size_t>(masked[slot]));
    }
  }
}

void text_gather_masked(Stream& /*stream*/, const MaskedShape& s, const std::int32_t* masked,
                        const float* x, float* to) {
  std::fill_n(to, s.slots() * s.width, 0.0F);
  for_slots(s, masked, [&](std::size_t slot, std::size_t token) {
    std::copy_n(x + token * s.width, s.width, to + slot * s.width);
  });
}

void text_scatter_masked(Stream& /*stream*/, const MaskedShape& s, const std::int32_t* masked,
                         const float* from, float* to) {
  for_slots(s, masked, [&](std::size_t slot, std::size_t token) {
    std::copy_n(from + slot * s.width, s.width, to + token * s.width);
  });
}

void text_cross_entropy(Stream& /*stream*/, const MaskedShape& s, const std::int32_t* masked,
                        const std::int32_t* targets, const float* scale, float* logits,
                        Score* score) {
  for (std::size_t slot = 0; slot < s.slots(); ++slot) {
    float* z = logits + slot * s.width;
    if (masked[slot] < 0) {
      std::fill_n(z, s.width, 0.0F);
      continue;
    }
    const std::int32_t* of_row = masked + slot / s.most_masked * s.most_masked;
    const auto count =
        std::count_if(of_row, of_row + s.most_masked, [](std::int32_t at) { return at >= 0; });
    const float weight = (scale == nullptr ? 0 : *scale) / static_cast<float>(count);
    const auto target = static_cast<std::size_t>(targets[slot]);
    const float largest = *std::max_element(z, z + s.width);
    const float shifted = z[target] - largest;
    float sum = 0;
    for (std::size_t word = 0; word < s.width; ++word) {
      z[word] = std::exp(z[word] - largest);
      sum += z[word];
    }
    for (std::size_t word = 0; word < s.width; ++word) {
      z[word] = (z[word] / sum - (word == target ? 1.0F : 0.0F)) * weight;
    }
    score->loss += double{std::log(sum)} - double{shifted};
    score->correct += shifted >= 0 ? 1 : 0;
    ++score->count;
  }
}

} // namespace

const TextKernels k_plain_text = {text_keep_bits,      text_drop,
                                  text_drop_and_add,   text_embed,
                                  text_embed_backward, text_norm,
                                  text_norm_backward,  text_gelu_backward,
                                  text_attention,      text_attention_backward,
                                  text_gather_masked,  text_scatter_masked,
                                  text_cross_entropy};

} // namespace trainer
