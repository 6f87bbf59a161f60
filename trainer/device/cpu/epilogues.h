// What a set of kernels has for Matmul (matmul.h), over vectors of V::k_lanes floats.
//
// Nothing here calls an inline function of a library: see vector.h.
#pragma once

#include "trainer/device/cpu/of_floats.h"
#include "trainer/device/cpu/sixteen.h"
#include "trainer/device/cpu/transpose.h"

namespace trainer {
namespace {

/// C = of(values of C, their address, their column, their number), over all of C.
template <typename V, typename F>
inline void change_part(const Matmul& s, const MatmulPart& part, const F& of) {
  float* const c = plain(s.c);
  for (std::size_t row = part.row; row < part.row + part.rows; ++row) {
    const std::size_t first = row * s.c_row;
    const std::size_t end = part.column + part.columns;
    for (std::size_t j = part.column; j < end; j += V::k_lanes) {
      const auto x = load_some<V>(c + first + j, end - j);
      store_some<V>(c + first + j, of(x, first + j, j, end - j), end - j);
    }
  }
}

template <typename V>
void vector_finish(const Matmul& s, const MatmulPart& part) {
  using F = typename V::Floats;
  using Epilogue = Matmul::Epilogue;
  const float* const with = plain(s.with);
  float* const beside = plain(s.beside);
  switch (s.epilogue) {
  case Epilogue::none:
  case Epilogue::bias_gradient:
    return;
  case Epilogue::bias:
    return change_part<V>(s, part, [&](F x, std::size_t, std::size_t j, std::size_t count) {
      return x + load_some<V>(with + j, count);
    });
  case Epilogue::relu_bias:
    return change_part<V>(s, part, [&](F x, std::size_t, std::size_t j, std::size_t count) {
      x = x + load_some<V>(with + j, count);
      return V::all(0) > x ? V::all(0) : x; // Not x > 0, which would lose a NaN.
    });
  case Epilogue::gelu_bias:
    return change_part<V>(s, part, [&](F x, std::size_t at, std::size_t j, std::size_t count) {
      x = x + load_some<V>(with + j, count);
      store_some<V>(beside + at, x, count);
      return x * phi_of<V>(x);
    });
  case Epilogue::gelu_tanh_bias:
    return change_part<V>(s, part, [&](F x, std::size_t at, std::size_t j, std::size_t count) {
      x = x + load_some<V>(with + j, count);
      store_some<V>(beside + at, x, count);
      return x * gelu_share<V>(x);
    });
  case Epilogue::drelu:
    return change_part<V>(s, part, [&](F x, std::size_t at, std::size_t, std::size_t count) {
      return load_some<V>(with + at, count) > V::all(0) ? x : V::all(0);
    });
  case Epilogue::dgelu:
    return change_part<V>(s, part, [&](F x, std::size_t at, std::size_t, std::size_t count) {
      return x * gelu_slope<V>(load_some<V>(with + at, count));
    });
  case Epilogue::dgelu_tanh:
    return change_part<V>(s, part, [&](F x, std::size_t at, std::size_t, std::size_t count) {
      return x * gelu_tanh_slope<V>(load_some<V>(with + at, count));
    });
  }
}

/// A few vectors of the columns at a time, as a row's neighbours share lines and pages.
template <typename V>
void vector_sum_rows_of(const RowShape& s, const float* from, bool accumulate, float* to) {
  constexpr std::size_t k_vectors = 8;
  constexpr std::size_t k_together = k_vectors * V::k_lanes;
  std::size_t j = 0;
  for (; j + k_together <= s.width; j += k_together) {
    typename V::Floats sum[k_vectors];
    for (std::size_t i = 0; i < k_vectors; ++i) {
      sum[i] = accumulate ? V::load(to + j + i * V::k_lanes) : V::all(0);
    }
    for (std::size_t row = 0; row < s.rows; ++row) {
      for (std::size_t i = 0; i < k_vectors; ++i) {
        sum[i] = sum[i] + V::load(from + row * s.stride + j + i * V::k_lanes);
      }
    }
    for (std::size_t i = 0; i < k_vectors; ++i) {
      V::store(to + j + i * V::k_lanes, sum[i]);
    }
  }
  for (; j < s.width; j += V::k_lanes) {
    auto sum = accumulate ? load_some<V>(to + j, s.width - j) : V::all(0);
    for (std::size_t row = 0; row < s.rows; ++row) {
      sum = sum + load_some<V>(from + row * s.stride + j, s.width - j);
    }
    store_some<V>(to + j, sum, s.width - j);
  }
}

using Floats4 [[gnu::vector_size(16)]] = float;

/// Transposes 4 × 4 values; the strides are those of rows.
inline void transpose_4(const float* from, std::size_t stride, float* to, std::size_t to_stride) {
  Floats4 row[4];
  for (std::size_t i = 0; i < 4; ++i) {
    __builtin_memcpy(&row[i], from + i * stride, sizeof row[i]);
  }
  const Floats4 a = __builtin_shufflevector(row[0], row[1], 0, 4, 1, 5);
  const Floats4 b = __builtin_shufflevector(row[2], row[3], 0, 4, 1, 5);
  const Floats4 c = __builtin_shufflevector(row[0], row[1], 2, 6, 3, 7);
  const Floats4 d = __builtin_shufflevector(row[2], row[3], 2, 6, 3, 7);
  const Floats4 turned[4] = {
      __builtin_shufflevector(a, b, 0, 1, 4, 5), __builtin_shufflevector(a, b, 2, 3, 6, 7),
      __builtin_shufflevector(c, d, 0, 1, 4, 5), __builtin_shufflevector(c, d, 2, 3, 6, 7)};
  for (std::size_t i = 0; i < 4; ++i) {
    __builtin_memcpy(to + i * to_stride, &turned[i], sizeof turned[i]);
  }
}

/// Columns [0, width) of 16 rows → (width, 16), in whole squares. Returns the columns done.
template <typename V>
inline std::size_t pack_squares(std::size_t width, const float* from, std::size_t stride,
                                float* to) {
  constexpr std::size_t k_side = V::k_lanes == k_panel ? k_panel : 4;
  const std::size_t whole = width / k_side * k_side;
  for (std::size_t j = 0; j < whole; j += k_side) {
    if constexpr (k_side == k_panel) {
      typename V::Floats rows[k_panel];
      for (std::size_t i = 0; i < k_panel; ++i) {
        rows[i] = V::load(from + i * stride + j);
      }
      transpose(rows);
      for (std::size_t i = 0; i < k_panel; ++i) {
        V::store(to + (j + i) * k_panel, rows[i]);
      }
    } else {
      for (std::size_t i = 0; i < k_panel; i += k_side) {
        transpose_4(from + i * stride + j, stride, to + j * k_panel + i, k_panel);
      }
    }
  }
  return whole;
}

/// In squares, and value by value at the edges.
template <typename V>
void vector_turn(const RowShape& s, const float* from, float* to, std::size_t to_stride) {
  constexpr std::size_t k_side = V::k_lanes == k_panel ? k_panel : 4;
  const std::size_t rows = s.rows / k_side * k_side;
  const std::size_t width = s.width / k_side * k_side;
  for (std::size_t i = 0; i < rows; i += k_side) {
    for (std::size_t j = 0; j < width; j += k_side) {
      const float* const first = from + i * s.stride + j;
      if constexpr (k_side == k_panel) {
        typename V::Floats square[k_panel];
        for (std::size_t row = 0; row < k_panel; ++row) {
          square[row] = V::load(first + row * s.stride);
        }
        transpose(square);
        for (std::size_t row = 0; row < k_panel; ++row) {
          V::store(to + (j + row) * to_stride + i, square[row]);
        }
      } else {
        transpose_4(first, s.stride, to + j * to_stride + i, to_stride);
      }
    }
  }
  for (std::size_t i = 0; i < s.rows; ++i) {
    for (std::size_t j = i < rows ? width : 0; j < s.width; ++j) {
      to[j * to_stride + i] = from[i * s.stride + j];
    }
  }
}

/// Row by row, as memory is read fastest. The same row of all panels may be in one set of the L1
/// cache, but each of its lines is written as a whole.
template <typename V>
void pack_panels(const RowShape& s, const float* from, float* to) {
  constexpr std::size_t k_ahead = 4; // Rows.
  const std::size_t whole = s.width / k_panel * k_panel;
  for (std::size_t row = 0; row < s.rows; ++row) {
    const float* const first = from + row * s.stride;
    float* panel = to + row * k_panel;
    for (std::size_t j = 0; j < whole; j += k_panel, panel += s.rows * k_panel) {
      __builtin_prefetch(first + k_ahead * s.stride + j);
      Sixteen<V>::load(first + j).store(panel);
    }
  }
  for (std::size_t row = 0; whole < s.width && row < s.rows; ++row) {
    for (std::size_t i = 0; i < k_panel; ++i) {
      to[whole * s.rows + row * k_panel + i] =
          whole + i < s.width ? from[row * s.stride + whole + i] : 0.0F;
    }
  }
}

template <typename V>
void pack_transposed(const RowShape& s, const float* from, float* to) {
  for (std::size_t row = 0; row < s.rows; row += k_panel, to += s.width * k_panel) {
    const float* const first = from + row * s.stride;
    const std::size_t count = s.rows - row < k_panel ? s.rows - row : k_panel;
    const std::size_t whole = count == k_panel ? pack_squares<V>(s.width, first, s.stride, to) : 0;
    for (std::size_t j = whole; j < s.width; ++j) {
      for (std::size_t i = 0; i < k_panel; ++i) {
        to[j * k_panel + i] = i < count ? first[i * s.stride + j] : 0.0F;
      }
    }
  }
}

template <typename V>
bool vector_round_bf16(std::size_t n, const float* from, float* to) {
  constexpr int k_size = 0x7fffffff;
  constexpr int k_infinity = 0x7f800000;
  Ints<V> odd{};
  for (std::size_t i = 0; i < n; i += V::k_lanes) {
    const auto x = nearest_bf16<V>(load_some<V>(from + i, n - i));
    odd |= ((Ints<V>)x & k_size) >= k_infinity;
    store_some<V>(to + i, x, n - i);
  }
  int any = 0;
  for (std::size_t lane = 0; lane < V::k_lanes; ++lane) {
    any |= odd[lane];
  }
  return any == 0;
}

template <typename V>
constexpr MatmulParts matmul_parts() {
  return {pack_panels<V>,   pack_transposed<V>,    vector_turn<V>,
          vector_finish<V>, vector_sum_rows_of<V>, vector_round_bf16<V>};
}

} // namespace
} // namespace trainer
