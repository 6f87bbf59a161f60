// What a set of kernels has for Matmul (matmul.h), over vectors of V::k_lanes floats.
//
// Nothing here calls an inline function of a library: see vector.h.
#pragma once

#include "trainer/device/cpu/matmul.h"
#include "trainer/device/cpu/transformer.h"

namespace trainer {
namespace {

template <typename V>
void vector_finish(const Matmul& s, const MatmulPart& part) {
  using Epilogue = Matmul::Epilogue;
  if (s.epilogue == Epilogue::none || s.epilogue == Epilogue::bias_gradient) {
    return;
  }
  const bool has_bias = s.epilogue != Epilogue::drelu && s.epilogue != Epilogue::dgelu;
  const auto zero = V::all(0);
  const std::size_t end = part.column + part.columns;
  for (std::size_t row = 0; row < s.m; ++row) {
    const std::size_t first = row * s.c_row;
    for (std::size_t j = part.column; j < end; j += V::k_lanes) {
      const std::size_t count = end - j;
      const auto with = load_some<V>(s.with + (has_bias ? j : first + j), count);
      auto x = load_some<V>(s.c + first + j, count);
      if (has_bias) {
        x = x + with;
      }
      if (s.epilogue == Epilogue::relu_bias) {
        x = zero > x ? zero : x; // Not x > 0: a NaN stays one.
      } else if (s.epilogue == Epilogue::gelu_bias) {
        store_some<V>(s.beside + first + j, x, count);
        x = x * phi_of<V>(x);
      } else if (s.epilogue == Epilogue::drelu) {
        x = with > zero ? x : zero;
      } else if (s.epilogue == Epilogue::dgelu) {
        x = x * gelu_slope<V>(with);
      }
      store_some<V>(s.c + first + j, x, count);
    }
  }
}

template <typename V>
void vector_sum_rows_of(const RowShape& s, const float* from, bool accumulate, float* to) {
  for (std::size_t j = 0; j < s.width; j += V::k_lanes) {
    auto sum = accumulate ? load_some<V>(to + j, s.width - j) : V::all(0);
    for (std::size_t row = 0; row < s.rows; ++row) {
      sum = sum + load_some<V>(from + row * s.stride + j, s.width - j);
    }
    store_some<V>(to + j, sum, s.width - j);
  }
}

template <typename V, void (*Product)(const Gemm&)>
void vector_matmul(Stream& /*stream*/, const Matmul& matmul) {
  static constexpr MatmulKernels kernels = {Product, plain_pack_transposed, vector_finish<V>,
                                            vector_sum_rows_of<V>};
  multiply(kernels, matmul);
}

} // namespace
} // namespace trainer
