// ConvolutionKernels over vectors of V::k_lanes floats. An image's tiles, 0.3 MB a matrix of 14 ×
// 14 pixels and 64 channels, stay in a core's second cache from one of these to the next.
#pragma once

#include "trainer/device/cpu/kernels.h"

namespace trainer {
namespace {

// The matrices of kernels.h and their transposes, each applied on one side, to the values of
// `from` that are `step` apart.

template <typename F>
inline void winograd_image(const F* from, std::size_t step, F* to, std::size_t to_step) { // Bᵀ
  to[0] = from[0] - from[2 * step];
  to[to_step] = from[step] + from[2 * step];
  to[2 * to_step] = from[2 * step] - from[step];
  to[3 * to_step] = from[step] - from[3 * step];
}

template <typename F>
inline void winograd_image_backward(const F* from, std::size_t step, F* to) { // B
  to[0] = from[0];
  to[step] = from[step] - from[2 * step] + from[3 * step];
  to[2 * step] = from[step] + from[2 * step] - from[0];
  to[3 * step] = F{} - from[3 * step];
}

template <typename F>
inline void winograd_pool(const F* from, std::size_t step, F* to, std::size_t to_step) { // Aᵀ
  to[0] = from[0] + from[step] + from[2 * step];
  to[to_step] = from[step] - from[2 * step] - from[3 * step];
}

template <typename F>
inline void winograd_pool_backward(const F* from, std::size_t step, F* to,
                                   std::size_t to_step) { // A
  to[0] = from[0];
  to[to_step] = from[0] + from[step];
  to[2 * to_step] = from[0] - from[step];
  to[3 * to_step] = F{} - from[step];
}

template <typename F>
inline void winograd_kernel(const F* from, std::size_t step, F* to, std::size_t to_step) { // G
  const F ends = (from[0] + from[2 * step]) * 0.5F;
  const F middle = from[step] * 0.5F;
  to[0] = from[0];
  to[to_step] = ends + middle;
  to[2 * to_step] = ends - middle;
  to[3 * to_step] = from[2 * step];
}

template <typename F>
inline void winograd_kernel_backward(const F* from, std::size_t step, F* to,
                                     std::size_t to_step) { // Gᵀ
  const F both = (from[step] + from[2 * step]) * 0.5F;
  to[0] = from[0] + both;
  to[to_step] = (from[step] - from[2 * step]) * 0.5F;
  to[2 * to_step] = both + from[3 * step];
}

template <typename V>
void vector_kernel(std::size_t panels, std::size_t rows, const float* weight, float* to) {
  const std::size_t plane = panels * rows * k_panel;
  for (std::size_t panel = 0; panel < panels; ++panel, weight += 9 * rows * k_panel) {
    for (std::size_t i = 0; i < rows * k_panel; i += V::k_lanes, to += V::k_lanes) {
      typename V::Floats g[9];
      typename V::Floats half[12]; // (4, 3)
      typename V::Floats u[16];
      for (std::size_t tap = 0; tap < 9; ++tap) {
        g[tap] = V::load(weight + tap * rows * k_panel + i);
      }
      for (std::size_t x = 0; x < 3; ++x) {
        winograd_kernel(g + x, 3, half + x, 3);
      }
      for (std::size_t y = 0; y < 4; ++y) {
        winograd_kernel(half + 3 * y, 1, u + 4 * y, 1);
      }
      for (std::size_t p = 0; p < 16; ++p) {
        V::store(to + p * plane, u[p]);
      }
    }
  }
}

template <typename V>
void vector_kernel_backward(std::size_t panels, std::size_t rows, const float* change,
                            bool accumulate, float* gradient) {
  const std::size_t plane = panels * rows * k_panel;
  for (std::size_t panel = 0; panel < panels; ++panel, gradient += 9 * rows * k_panel) {
    for (std::size_t i = 0; i < rows * k_panel; i += V::k_lanes, change += V::k_lanes) {
      typename V::Floats u[16];
      typename V::Floats half[12]; // (4, 3)
      typename V::Floats g[9];
      for (std::size_t p = 0; p < 16; ++p) {
        u[p] = V::load(change + p * plane);
      }
      for (std::size_t y = 0; y < 4; ++y) {
        winograd_kernel_backward(u + 4 * y, 1, half + 3 * y, 1);
      }
      for (std::size_t x = 0; x < 3; ++x) {
        winograd_kernel_backward(half + x, 3, g + x, 3);
      }
      for (std::size_t tap = 0; tap < 9; ++tap) {
        float* at = gradient + tap * rows * k_panel + i;
        V::store(at, accumulate ? V::load(at) + g[tap] : g[tap]);
      }
    }
  }
}

template <typename V>
void vector_image(const PixelGrid& grid, std::size_t channels, const float* image, float* tiles) {
  const std::size_t plane = grid.plane(channels);
  const std::size_t row = grid.pitch() * channels;
  for (std::size_t y = 0; y < grid.height / 2; ++y, tiles += grid.width / 2 * channels) {
    for (std::size_t c = 0; c < channels; c += V::k_lanes) {
      const float* from = image + 2 * y * row - row - channels + c;
      typename V::Floats half[16];
      const auto take_column = [&](std::size_t i) {
        typename V::Floats d[4];
        for (std::size_t j = 0; j < 4; ++j) {
          d[j] = V::load(from + j * row);
        }
        from += channels;
        winograd_image(d, 1, half + i, 4);
      };
      take_column(2);
      take_column(3);
      for (std::size_t x = 0; x < grid.width / 2; ++x) {
        for (std::size_t i = 0; i < 4; ++i) { // Neighbouring tiles share two columns.
          half[4 * i] = half[4 * i + 2];
          half[4 * i + 1] = half[4 * i + 3];
        }
        take_column(2);
        take_column(3);
        float* const to = tiles + x * channels + c;
        for (std::size_t i = 0; i < 4; ++i) {
          typename V::Floats d[4];
          winograd_image(half + 4 * i, 1, d, 1);
          for (std::size_t j = 0; j < 4; ++j) {
            V::store(to + (4 * i + j) * plane, d[j]);
          }
        }
      }
    }
  }
}

template <typename V>
void vector_image_backward(const PixelGrid& grid, std::size_t channels, const float* tiles,
                           float* image) {
  const std::size_t plane = grid.plane(channels);
  const std::size_t row = grid.pitch() * channels;
  for (std::size_t y = 0; y < grid.height / 2; ++y) {
    float* to = image + 2 * y * row - row - channels;
    for (std::size_t x = 0; x < grid.width / 2; ++x, to += 2 * channels) {
      for (std::size_t c = 0; c < channels; c += V::k_lanes, tiles += V::k_lanes) {
        typename V::Floats d[16];
        for (std::size_t p = 0; p < 16; ++p) {
          d[p] = V::load(tiles + p * plane);
        }
        typename V::Floats half[16];
        for (std::size_t i = 0; i < 4; ++i) {
          winograd_image_backward(d + i, 4, half + i);
        }
        for (std::size_t i = 0; i < 4; ++i) {
          winograd_image_backward(half + 4 * i, 1, d + 4 * i);
        }
        for (std::size_t p = 0; p < 16; ++p) {
          float* at = to + p / 4 * row + p % 4 * channels + c;
          V::store(at, V::load(at) + d[p]);
        }
      }
    }
  }
}

/// relu(the largest of four + bias). Which one that is is unpredictable, so masks are used instead
/// of branches. A NaN is kept, so that the loss shows it.
template <typename V>
inline typename V::Floats pooled(const typename V::Floats* four, typename V::Floats bias,
                                 unsigned char* chosen) {
  const auto zero = V::all(0);
  auto best = four[0];
  auto which = zero;
  for (std::size_t i = 1; i < 4; ++i) {
    // NOLINTNEXTLINE(misc-redundant-expression): a NaN differs from itself.
    const auto stays = (four[i] <= best) | (best != best);
    best = stays ? best : four[i];
    which = stays ? which : V::all(static_cast<float>(i));
  }
  best = best + bias;
  const auto dies = best <= zero;
  V::store_bytes(chosen, dies ? V::all(4) : which);
  return dies ? zero : best;
}

/// The gradients of the four values and of the bias.
template <typename V>
inline typename V::Floats unpooled(const unsigned char* chosen, typename V::Floats change,
                                   typename V::Floats* four) {
  const auto zero = V::all(0);
  const auto which = V::floats_of(chosen);
  for (std::size_t i = 0; i < 4; ++i) {
    four[i] = which == V::all(static_cast<float>(i)) ? change : zero;
  }
  return which == V::all(4) ? zero : change;
}

template <typename V>
void vector_pool(const Pooling& p, const float* tiles, const float* bias, float* to,
                 unsigned char* chosen) {
  const std::size_t plane = p.grid.plane(p.channels);
  for (std::size_t y = 0; y < p.grid.height / 2; ++y) {
    for (std::size_t x = 0; x < p.grid.width / 2; ++x) {
      float* at = to + y * p.to_y + x * p.to_x;
      for (std::size_t c = 0; c < p.channels; c += V::k_lanes) {
        typename V::Floats m[16];
        typename V::Floats half[8]; // (2, 4)
        typename V::Floats four[4];
        for (std::size_t i = 0; i < 16; ++i) {
          m[i] = V::load(tiles + i * plane);
        }
        for (std::size_t i = 0; i < 4; ++i) {
          winograd_pool(m + i, 4, half + i, 4);
        }
        for (std::size_t i = 0; i < 2; ++i) {
          winograd_pool(half + 4 * i, 1, four + 2 * i, 1);
        }
        V::store(at + c / k_panel * p.to_panel + c % k_panel,
                 pooled<V>(four, V::load(bias + c), chosen));
        tiles += V::k_lanes;
        chosen += V::k_lanes;
      }
    }
  }
}

template <typename V>
void vector_pool_backward(const Pooling& p, const unsigned char* chosen, const float* change,
                          float* tiles, float* dbias) {
  const std::size_t plane = p.grid.plane(p.channels);
  for (std::size_t y = 0; y < p.grid.height / 2; ++y) {
    for (std::size_t x = 0; x < p.grid.width / 2; ++x) {
      const float* from = change + y * p.to_y + x * p.to_x;
      for (std::size_t c = 0; c < p.channels; c += V::k_lanes) {
        typename V::Floats four[4];
        typename V::Floats half[8]; // (4, 2)
        typename V::Floats m[16];
        const auto kept =
            unpooled<V>(chosen, V::load(from + c / k_panel * p.to_panel + c % k_panel), four);
        V::store(dbias + c, V::load(dbias + c) + kept);
        for (std::size_t i = 0; i < 2; ++i) {
          winograd_pool_backward(four + i, 2, half + i, 2);
        }
        for (std::size_t i = 0; i < 4; ++i) {
          winograd_pool_backward(half + 2 * i, 1, m + 4 * i, 1);
        }
        for (std::size_t i = 0; i < 16; ++i) {
          V::store(tiles + i * plane, m[i]);
        }
        tiles += V::k_lanes;
        chosen += V::k_lanes;
      }
    }
  }
}

/// Computes that many vectors of channels from `c` on. Each is the four sums of a pool: two vectors
/// are eight chains of additions, as many as hide the time that one takes.
template <typename V, std::size_t Vectors>
inline void pool_one_channel(const Pooling& p, const float* from, std::size_t c,
                             const float* weight, const float* bias, float* to,
                             unsigned char* chosen) {
  const std::size_t pitch = p.grid.pitch();
  typename V::Floats four[Vectors][4] = {};
  const float* lane[Vectors];
  for (std::size_t v = 0; v < Vectors; ++v) {
    const std::size_t channel = c + v * V::k_lanes;
    lane[v] = weight + channel / k_panel * 9 * k_panel + channel % k_panel;
  }
  for (std::size_t y = 0; y < 3; ++y, from += pitch) {
    for (std::size_t x = 0; x < 3; ++x) {
      const typename V::Floats pixels[4] = {V::all(from[x]), V::all(from[x + 1]),
                                            V::all(from[x + pitch]), V::all(from[x + pitch + 1])};
      for (std::size_t v = 0; v < Vectors; ++v) {
        const auto w = V::load(lane[v] + x * k_panel);
        for (std::size_t i = 0; i < 4; ++i) {
          four[v][i] = pixels[i] * w + four[v][i];
        }
      }
    }
    for (std::size_t v = 0; v < Vectors; ++v) {
      lane[v] += 3 * k_panel;
    }
  }
  for (std::size_t v = 0; v < Vectors; ++v) {
    const std::size_t channel = c + v * V::k_lanes;
    V::store(to + channel / k_panel * p.to_panel + channel % k_panel,
             pooled<V>(four[v], V::load(bias + channel), chosen + channel));
  }
}

template <typename V>
void vector_one_channel(const Pooling& p, const float* image, const float* weight,
                        const float* bias, float* to, unsigned char* chosen) {
  const std::size_t pitch = p.grid.pitch();
  for (std::size_t y = 0; y < p.grid.height / 2; ++y) {
    for (std::size_t x = 0; x < p.grid.width / 2; ++x, chosen += p.channels) {
      const float* from = image + 2 * y * pitch + 2 * x - pitch - 1;
      float* const at = to + y * p.to_y + x * p.to_x;
      std::size_t c = 0;
      for (; c + 2 * V::k_lanes <= p.channels; c += 2 * V::k_lanes) {
        pool_one_channel<V, 2>(p, from, c, weight, bias, at, chosen);
      }
      for (; c < p.channels; c += V::k_lanes) {
        pool_one_channel<V, 1>(p, from, c, weight, bias, at, chosen);
      }
    }
  }
}

template <typename V>
void vector_one_channel_backward(const Pooling& p, const float* image, const unsigned char* chosen,
                                 const float* change, bool accumulate, float* gradient,
                                 float* dbias) {
  const std::size_t pitch = p.grid.pitch();
  for (std::size_t c = 0; c < p.channels; c += V::k_lanes) {
    typename V::Floats sum[9] = {};
    auto bias_sum = V::load(dbias + c);
    const float* const lane = change + c / k_panel * p.to_panel + c % k_panel;
    const unsigned char* which = chosen + c;
    for (std::size_t y = 0; y < p.grid.height / 2; ++y) {
      for (std::size_t x = 0; x < p.grid.width / 2; ++x, which += p.channels) {
        const float* from = image + 2 * y * pitch + 2 * x - pitch - 1;
        typename V::Floats four[4];
        bias_sum = bias_sum + unpooled<V>(which, V::load(lane + y * p.to_y + x * p.to_x), four);
        for (std::size_t i = 0; i < 4; ++i) {
          for (std::size_t tap = 0; tap < 9; ++tap) {
            const float* pixel = from + (i / 2 + tap / 3) * pitch + i % 2 + tap % 3;
            sum[tap] = V::all(*pixel) * four[i] + sum[tap];
          }
        }
      }
    }
    V::store(dbias + c, bias_sum);
    for (std::size_t tap = 0; tap < 9; ++tap) {
      float* to = gradient + (c / k_panel * 9 + tap) * k_panel + c % k_panel;
      V::store(to, accumulate ? V::load(to) + sum[tap] : sum[tap]);
    }
  }
}

template <typename V>
constexpr ConvolutionKernels convolution_kernels() {
  return {vector_kernel<V>,      vector_kernel_backward<V>,
          vector_image<V>,       vector_image_backward<V>,
          vector_pool<V>,        vector_pool_backward<V>,
          vector_one_channel<V>, vector_one_channel_backward<V>};
}

} // namespace
} // namespace trainer
