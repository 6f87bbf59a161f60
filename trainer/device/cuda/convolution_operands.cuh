// The operands of convolutions as matrix products (convolution.cu says which, patch_product.cuh how
// they are read), and what becomes of the results. Letters as in ConvolutionShape; V: channels, or
// outputs, that are read or written at once.
#pragma once

#include "trainer/device/cuda/products/patch_product.cuh"
#include "trainer/device/kernels.h"

namespace trainer {
namespace {

constexpr unsigned k_taps = 9;
constexpr std::uint8_t k_none_chosen = 4;
constexpr unsigned k_pool = 4; ///< Pixels of a pool, or of any square of 2 × 2.
static_assert(k_pool == k_side, "four rows of a product are a pool");
constexpr unsigned k_outside = 1U << 29; ///< A coordinate that is in no image,
constexpr unsigned k_no_tap = 1U << 30;  ///< and one that is in none beside any other.

/// Divides numbers below 2^31 by one that the host knows, with a multiplication (Granlund and
/// Montgomery, Division by invariant integers using multiplication, 1994).
struct Divisor {
  unsigned by;
  unsigned factor = 1;
  unsigned shift = 0;

  explicit Divisor(std::size_t divisor) : by(static_cast<unsigned>(divisor > 0 ? divisor : 1)) {
    while ((1U << shift) < by) {
      ++shift;
    }
    const std::uint64_t above = (std::uint64_t{1} << shift) - by;
    factor = static_cast<unsigned>((above << 32U) / by + 1);
  }
  __device__ unsigned divide(unsigned i) const {
    return (static_cast<unsigned>(std::uint64_t{i} * factor >> 32U) + i) >> shift;
  }
};

/// A square of 2 × 2 pixels of an image, or a pool: its first pixel.
struct PixelSquare {
  unsigned image;
  unsigned at_y;
  unsigned at_x;
};

/// Finds the squares of images by their numbers.
struct PixelSquares {
  unsigned all;
  Divisor an_image;
  Divisor a_row;

  PixelSquares(std::size_t images, std::size_t down, std::size_t across)
      : all(static_cast<unsigned>(images * down * across)), an_image(down * across), a_row(across) {
  }
  static PixelSquares pools(const ConvolutionShape& s) {
    return {s.images, s.height / 2, s.width / 2};
  }
  static PixelSquares of_all_pixels(const ConvolutionShape& s) {
    return {s.images, (s.height + 1) / 2, (s.width + 1) / 2};
  }
  __device__ PixelSquare find(unsigned i) const {
    const unsigned image = an_image.divide(i);
    const unsigned in_image = i - image * an_image.by;
    const unsigned row = a_row.divide(in_image);
    return {image, 2 * row, 2 * (in_image - row * a_row.by)};
  }
  __device__ PixelSquare find_or_outside(unsigned i) const {
    return i < all ? find(i) : PixelSquare{0, k_outside, 0};
  }
};

/// A tap and a channel or output: its offset plus one, or k_no_tap.
struct Tap {
  unsigned at_y;
  unsigned at_x;
  unsigned channel;
};

__device__ inline Tap find_tap(const Divisor& channels, unsigned i) {
  const unsigned tap = channels.divide(i);
  return {tap < k_taps ? tap / 3 : k_no_tap, tap % 3, i - tap * channels.by};
}

/// The inputs (row, tap·C + channel) of pixel `row` of a pool; 0 outside the image. V: channels
/// that are read at once.
template <int V, bool AlongSteps>
struct Pixels {
  static constexpr bool k_along_steps = AlongSteps;
  ConvolutionShape s;
  const float* x;
  Divisor channels = Divisor(s.channels);
  PixelSquares pools = PixelSquares::pools(s);

  struct Taps {
    Tap at[k_side / V];
  };
  __device__ auto lines(unsigned first) const {
    if constexpr (AlongSteps) {
      return pools.find_or_outside(first / k_pool);
    } else {
      return taps(first);
    }
  }
  template <typename Lines>
  __device__ void fetch(const Lines& lines, unsigned step, Patch& to) const {
    if constexpr (AlongSteps) {
      read(lines, taps(step), [&](unsigned pixel, int i) -> float& { return to[i][pixel]; });
    } else {
      read(pools.find_or_outside(step / k_pool), lines,
           [&](unsigned pixel, int i) -> float& { return to[pixel][i]; });
    }
  }

 private:
  __device__ Taps taps(unsigned first) const {
    Taps all;
    DTRAIN_UNROLL
    for (int i = 0; i < k_side / V; ++i) {
      all.at[i] = find_tap(channels, first + static_cast<unsigned>(i) * V);
    }
    return all;
  }
  template <typename To>
  __device__ void read(const PixelSquare& square, const Taps& taps, const To& to) const {
    const auto height = static_cast<unsigned>(s.height);
    const auto width = static_cast<unsigned>(s.width);
    const float* const image = x + square.image * (s.height * s.width * s.channels);
    DTRAIN_UNROLL
    for (int first = 0; first < k_side; first += V) {
      const Tap& tap = taps.at[first / V];
      DTRAIN_UNROLL
      for (unsigned pixel = 0; pixel < k_pool; ++pixel) {
        const unsigned at_y = square.at_y + pixel / 2 + tap.at_y - 1;
        const unsigned at_x = square.at_x + pixel % 2 + tap.at_x - 1;
        Pack<float, V> values = {};
        if (at_y < height && at_x < width) {
          values = load<V>(image + (at_y * width + at_x) * channels.by + tap.channel);
        }
        DTRAIN_UNROLL
        for (int i = 0; i < V; ++i) {
          to(pixel, first + i) = values.at[i];
        }
      }
    }
  }
};

/// Weights (output, tap·C + channel).
template <int V>
struct Weight {
  static constexpr bool k_along_steps = true;
  const float* weight;
  unsigned outputs;
  unsigned k;

  __device__ unsigned lines(unsigned first) const { return first; }
  __device__ void fetch(unsigned output, unsigned step, Patch& to) const {
    DTRAIN_UNROLL
    for (int line = 0; line < k_side; ++line) {
      DTRAIN_UNROLL
      for (int first = 0; first < k_side; first += V) {
        Pack<float, V> values = {};
        if (output + line < outputs && step + first < k) {
          values = load<V>(weight + std::size_t{output + line} * k + step + first);
        }
        DTRAIN_UNROLL
        for (int i = 0; i < V; ++i) {
          to[first + i][line] = values.at[i];
        }
      }
    }
  }
};

/// The gradient of pixels before pooling.
template <int V>
struct Unpooled {
  const float* dy;
  const std::uint8_t* chosen;

  /// Reads the gradients, of V outputs from number i on, of pixel `quarter` of their pools.
  struct Read {
    Pack<float, V> change = {};
    Pack<std::uint8_t, V> chosen;

    __device__ float at(int i, unsigned quarter) const {
      return chosen.at[i] == quarter ? change.at[i] : 0.0F;
    }
  };
  __device__ Read read(std::size_t i) const { return {load<V>(dy + i), load<V>(chosen + i)}; }
};

template <int V>
struct UnpooledByOutput : Unpooled<V> { ///< (output, row)
  static constexpr bool k_along_steps = false;
  unsigned outputs;
  unsigned pools;

  __device__ unsigned lines(unsigned first) const { return first; }
  __device__ void fetch(unsigned output, unsigned step, Patch& to) const {
    DTRAIN_UNROLL
    for (int first = 0; first < k_side; first += V) {
      const unsigned pool = step / k_pool;
      typename Unpooled<V>::Read values = {};
      if (output + first < outputs && pool < pools) {
        values = this->read(std::size_t{pool} * outputs + output + first);
      }
      DTRAIN_UNROLL
      for (int i = 0; i < V; ++i) {
        DTRAIN_UNROLL
        for (unsigned quarter = 0; quarter < k_pool; ++quarter) {
          to[quarter][first + i] = values.at(i, quarter);
        }
      }
    }
  }
};

template <int V>
struct UnpooledAround : Unpooled<V> { ///< (pixel of a square, tap·O + output)
  static constexpr bool k_along_steps = true;
  ConvolutionShape s;
  Divisor outputs = Divisor(s.outputs);
  PixelSquares squares = PixelSquares::of_all_pixels(s);

  __device__ PixelSquare lines(unsigned first) const {
    return squares.find_or_outside(first / k_pool);
  }
  __device__ void fetch(const PixelSquare& square, unsigned step, Patch& to) const {
    const auto across = static_cast<unsigned>(s.width / 2);
    const auto down = static_cast<unsigned>(s.height / 2);
    DTRAIN_UNROLL
    for (int first = 0; first < k_side; first += V) {
      const Tap tap = find_tap(outputs, step + first);
      DTRAIN_UNROLL
      for (unsigned pixel = 0; pixel < k_pool; ++pixel) {
        // Of the output that reads the pixel through this tap.
        const unsigned at_y = square.at_y + pixel / 2 + 1 - tap.at_y;
        const unsigned at_x = square.at_x + pixel % 2 + 1 - tap.at_x;
        typename Unpooled<V>::Read values = {};
        if (at_y < 2 * down && at_x < 2 * across) {
          const unsigned pool = (square.image * down + at_y / 2) * across + at_x / 2;
          values = this->read(std::size_t{pool} * outputs.by + tap.channel);
        }
        DTRAIN_UNROLL
        for (int i = 0; i < V; ++i) {
          to[first + i][pixel] = values.at(i, at_y % 2 * 2 + at_x % 2);
        }
      }
    }
  }
};

template <int V>
struct WeightByChannel { ///< (channel, tap·O + output)
  static constexpr bool k_along_steps = false;
  const float* weight;
  unsigned channels;
  Divisor outputs;

  __device__ unsigned lines(unsigned first) const { return first; }
  __device__ void fetch(unsigned channel, unsigned step, Patch& to) const {
    DTRAIN_UNROLL
    for (int i = 0; i < k_side; ++i) {
      const unsigned tap = outputs.divide(step + i);
      const std::size_t output = step + i - tap * outputs.by;
      const float* const from = weight + (output * k_taps + tap) * channels + channel;
      DTRAIN_UNROLL
      for (int first = 0; first < k_side; first += V) {
        Pack<float, V> values = {};
        if (tap < k_taps && channel + first < channels) {
          values = load<V>(from + first);
        }
        DTRAIN_UNROLL
        for (int v = 0; v < V; ++v) {
          to[i][first + v] = values.at[v];
        }
      }
    }
  }
};

/// Four rows are a pool. Keeps a NaN.
template <int V>
struct Pool {
  const float* bias;
  float* y;
  std::uint8_t* chosen;
  unsigned pools;
  unsigned outputs;
  static constexpr int k_at_once = V;

  __device__ void operator()(const Patch& sum, unsigned row, unsigned output) const {
    const unsigned pool = row / k_pool;
    DTRAIN_UNROLL
    for (int first = 0; first < k_side; first += V) {
      if (pool >= pools || output + first >= outputs) {
        return;
      }
      Pack<float, V> best;
      Pack<std::uint8_t, V> which = {};
      const auto biases = load<V>(bias + output + first);
      DTRAIN_UNROLL
      for (int v = 0; v < V; ++v) {
        best.at[v] = sum[0][first + v];
        DTRAIN_UNROLL
        for (unsigned i = 1; i < k_pool; ++i) {
          if (!(sum[i][first + v] <= best.at[v]) && !isnan(best.at[v])) {
            best.at[v] = sum[i][first + v];
            which.at[v] = static_cast<std::uint8_t>(i);
          }
        }
        best.at[v] += biases.at[v];
        if (best.at[v] <= 0) {
          best.at[v] = 0;
          which.at[v] = k_none_chosen;
        }
      }
      const std::size_t at = std::size_t{pool} * outputs + output + first;
      store(best, y + at);
      store(which, chosen + at);
    }
  }
};

/// Writes V values of a row of `to`, from `column` on.
template <int V>
__device__ void store_row(const float (&row)[k_side], float* to, unsigned column,
                          unsigned columns) {
  DTRAIN_UNROLL
  for (int first = 0; first < k_side; first += V) {
    if (column + first < columns) {
      Pack<float, V> values;
      DTRAIN_UNROLL
      for (int v = 0; v < V; ++v) {
        values.at[v] = row[first + v];
      }
      store(values, to + column + first);
    }
  }
}

/// Writes the splits of (m, n) one after the other.
template <int V>
struct StoreParts {
  float* to;
  unsigned m;
  unsigned n;

  __device__ void operator()(const Patch& sum, unsigned row, unsigned column) const {
    DTRAIN_UNROLL
    for (unsigned r = 0; r < k_side && row + r < m; ++r) {
      store_row<V>(sum[r], to + (std::size_t{blockIdx.z} * m + row + r) * n, column, n);
    }
  }
};

/// Writes the pixels of squares.
template <int V>
struct StorePixels {
  ConvolutionShape s;
  float* dx;
  PixelSquares squares = PixelSquares::of_all_pixels(s);

  __device__ void operator()(const Patch& sum, unsigned row, unsigned channel) const {
    const PixelSquare square = squares.find_or_outside(row / k_pool);
    DTRAIN_UNROLL
    for (unsigned pixel = 0; pixel < k_pool; ++pixel) {
      const std::size_t at_y = square.at_y + pixel / 2;
      const std::size_t at_x = square.at_x + pixel % 2;
      if (at_y < s.height && at_x < s.width) {
        store_row<V>(sum[pixel],
                     dx + ((square.image * s.height + at_y) * s.width + at_x) * s.channels, channel,
                     static_cast<unsigned>(s.channels));
      }
    }
  }
};

} // namespace
} // namespace trainer
