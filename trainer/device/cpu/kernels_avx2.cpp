// AVX2 and FMA. This file alone is compiled for them (see trainer/CMakeLists.txt), and it includes
// nothing with inline functions, so that no such instruction ends up in code that others share.
#include "trainer/device/cpu/flat.h"
#include "trainer/device/cpu/kernels.h"

#if defined(__AVX2__) && defined(__FMA__)

#include <immintrin.h>

namespace trainer {
namespace {

constexpr std::size_t k_tile_rows = 6;        // 12 accumulators, 2 of B, 1 of A: 15 of 16 registers
constexpr std::size_t k_strided_k_block = 64; // Rows of a transposed A that stay in L1 and L2.

struct Tile {
  std::size_t k;
  const float* a;
  std::size_t a_row;
  std::size_t a_column;
  const float* b;
  float* c;
  std::size_t c_row;
};

template <std::size_t Rows>
inline void multiply_tile(const Tile& t, bool accumulate) {
  __m256 low[Rows];
  __m256 high[Rows];
  for (std::size_t i = 0; i < Rows; ++i) {
    low[i] = accumulate ? _mm256_loadu_ps(t.c + i * t.c_row) : _mm256_setzero_ps();
    high[i] = accumulate ? _mm256_loadu_ps(t.c + i * t.c_row + 8) : _mm256_setzero_ps();
  }
  const float* a = t.a;
  const float* b = t.b;
  for (std::size_t k = 0; k < t.k; ++k) {
    const __m256 b_low = _mm256_loadu_ps(b);
    const __m256 b_high = _mm256_loadu_ps(b + 8);
    for (std::size_t i = 0; i < Rows; ++i) {
      const __m256 a_i = _mm256_broadcast_ss(a + i * t.a_row);
      low[i] = _mm256_fmadd_ps(a_i, b_low, low[i]);
      high[i] = _mm256_fmadd_ps(a_i, b_high, high[i]);
    }
    a += t.a_column;
    b += k_panel;
  }
  for (std::size_t i = 0; i < Rows; ++i) {
    _mm256_storeu_ps(t.c + i * t.c_row, low[i]);
    _mm256_storeu_ps(t.c + i * t.c_row + 8, high[i]);
  }
}

void gemm(const Gemm& g) {
  const std::size_t k_block = g.a_column == 1 ? g.k : k_strided_k_block;
  for (std::size_t k0 = 0; k0 < g.k; k0 += k_block) {
    const std::size_t k = g.k - k0 < k_block ? g.k - k0 : k_block;
    const bool accumulate = g.accumulate || k0 > 0;
    for (std::size_t panel = 0; panel < g.panels; ++panel) {
      Tile t{k,
             g.a + k0 * g.a_column,
             g.a_row,
             g.a_column,
             g.b + (panel * g.k + k0) * k_panel,
             g.c + panel * g.c_panel,
             g.c_row};
      std::size_t left = g.m;
      for (; left >= k_tile_rows; left -= k_tile_rows) {
        multiply_tile<k_tile_rows>(t, accumulate);
        t.a += k_tile_rows * g.a_row;
        t.c += k_tile_rows * g.c_row;
      }
      switch (left) {
      case 1:
        multiply_tile<1>(t, accumulate);
        break;
      case 2:
        multiply_tile<2>(t, accumulate);
        break;
      case 3:
        multiply_tile<3>(t, accumulate);
        break;
      case 4:
        multiply_tile<4>(t, accumulate);
        break;
      case 5:
        multiply_tile<5>(t, accumulate);
        break;
      default:
        break;
      }
    }
  }
}

// Widths here are whole panels, so no loop below has a remainder but the flat ones.

void bias_relu(std::size_t rows, std::size_t width, const float* bias, float* y) {
  const __m256 zero = _mm256_setzero_ps(); // First: the second operand is what is left of a NaN.
  for (std::size_t row = 0; row < rows; ++row, y += width) {
    for (std::size_t j = 0; j < width; j += 8) {
      const __m256 sum = _mm256_add_ps(_mm256_loadu_ps(y + j), _mm256_loadu_ps(bias + j));
      _mm256_storeu_ps(y + j, _mm256_max_ps(zero, sum));
    }
  }
}

void relu_backward(std::size_t rows, std::size_t width, const float* y, float* dy, float* dbias) {
  const __m256 zero = _mm256_setzero_ps();
  for (std::size_t j = 0; j < width; j += k_panel) {
    __m256 sum_low = zero;
    __m256 sum_high = zero;
    for (std::size_t row = 0; row < rows; ++row, dy += k_panel) {
      const float* active = y + row * width + j;
      const __m256 mask_low = _mm256_cmp_ps(_mm256_loadu_ps(active), zero, _CMP_GT_OQ);
      const __m256 mask_high = _mm256_cmp_ps(_mm256_loadu_ps(active + 8), zero, _CMP_GT_OQ);
      const __m256 low = _mm256_and_ps(_mm256_loadu_ps(dy), mask_low);
      const __m256 high = _mm256_and_ps(_mm256_loadu_ps(dy + 8), mask_high);
      _mm256_storeu_ps(dy, low);
      _mm256_storeu_ps(dy + 8, high);
      sum_low = _mm256_add_ps(sum_low, low);
      sum_high = _mm256_add_ps(sum_high, high);
    }
    _mm256_storeu_ps(dbias + j, _mm256_add_ps(_mm256_loadu_ps(dbias + j), sum_low));
    _mm256_storeu_ps(dbias + j + 8, _mm256_add_ps(_mm256_loadu_ps(dbias + j + 8), sum_high));
  }
}

// A batch has ten exponentials a sample against 400,000 FLOP: the plain loop is 0.5 % of a step.
Score softmax_cross_entropy(std::size_t rows, std::size_t classes, const std::uint8_t* labels,
                            const float* bias, float scale, float* logits, float* dbias) {
  return portable_kernels().softmax_cross_entropy(rows, classes, labels, bias, scale, logits,
                                                  dbias);
}

void adam(Stream& stream, std::size_t n, const UpdateRule& a, const float* gradient, float* m,
          float* v, float* parameter) {
  const __m256 factor = _mm256_set1_ps(a.factor == nullptr ? 1.0F : *a.factor);
  const __m256 l2 = _mm256_set1_ps(a.l2);
  const __m256 shrink = _mm256_set1_ps(a.shrink);
  const __m256 beta1 = _mm256_set1_ps(a.beta1);
  const __m256 beta2 = _mm256_set1_ps(a.beta2);
  const __m256 rest1 = _mm256_set1_ps(1 - a.beta1);
  const __m256 rest2 = _mm256_set1_ps(1 - a.beta2);
  const __m256 step = _mm256_set1_ps(a.step_size);
  const __m256 correction = _mm256_set1_ps(a.inverse_correction2);
  const __m256 epsilon = _mm256_set1_ps(a.epsilon);
  std::size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m256 p = _mm256_loadu_ps(parameter + i);
    const __m256 g = _mm256_fmadd_ps(l2, p, _mm256_mul_ps(factor, _mm256_loadu_ps(gradient + i)));
    const __m256 m_new = _mm256_fmadd_ps(beta1, _mm256_loadu_ps(m + i), _mm256_mul_ps(rest1, g));
    const __m256 v_new =
        _mm256_fmadd_ps(beta2, _mm256_loadu_ps(v + i), _mm256_mul_ps(rest2, _mm256_mul_ps(g, g)));
    const __m256 denominator = _mm256_fmadd_ps(_mm256_sqrt_ps(v_new), correction, epsilon);
    const __m256 change = _mm256_div_ps(_mm256_mul_ps(step, m_new), denominator);
    _mm256_storeu_ps(m + i, m_new);
    _mm256_storeu_ps(v + i, v_new);
    _mm256_storeu_ps(parameter + i, _mm256_fmsub_ps(shrink, p, change));
  }
  portable_kernels().adam(stream, n - i, a, gradient + i, m + i, v + i, parameter + i);
}

void bytes_to_floats(Stream& stream, std::size_t n, const std::uint8_t* from, float* to) {
  const __m256 scale = _mm256_set1_ps(1.0F / 255.0F);
  std::size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i));
    const __m256i low = _mm256_cvtepu8_epi32(bytes);
    const __m256i high = _mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8));
    _mm256_storeu_ps(to + i, _mm256_mul_ps(_mm256_cvtepi32_ps(low), scale));
    _mm256_storeu_ps(to + i + 8, _mm256_mul_ps(_mm256_cvtepi32_ps(high), scale));
  }
  portable_kernels().bytes_to_floats(stream, n - i, from + i, to + i);
}

} // namespace

const CpuKernels* avx2_kernels() {
  static constexpr CpuKernels kernels = {
      {"avx2", flat::sgd, adam, flat::lamb, flat::clip_factor, bytes_to_floats},
      gemm,
      bias_relu,
      relu_backward,
      softmax_cross_entropy,
      flat::max_pool_relu,
      flat::max_pool_relu_backward};
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? &kernels : nullptr;
}

} // namespace trainer

#else

namespace trainer {
const CpuKernels* avx2_kernels() { return nullptr; }
} // namespace trainer

#endif
