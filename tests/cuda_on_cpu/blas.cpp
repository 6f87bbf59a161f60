// cuBLASLt as tests have it where there is no GPU: products by plain loops, carried out on the
// stream as late as its own. Wrong use ends the program: memory less aligned than the plan was
// told, a plan or workspace of another GPU or stream, and in FP8 whatever cuBLASLt's documentation
// of cublasLtMatmul() refuses.
//
// DTRAIN_FAKE_BLAS=1: there is one; by itself the plug-in's own kernels compute.
#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <vector>

#include "tests/cuda_on_cpu/world.h"
#include "trainer/device/cuda/products/matmul.h"
#include "trainer/device/fp8.h"
#include "trainer/device/halves.h"

namespace cuda_on_cpu {
namespace {

using namespace trainer;

std::atomic<int> made{0};
std::atomic<int> run_in_fp8{0};

struct Plan {
  int gpu;
  MatmulShape shape;
};

/// Only E4M3 by E4M3 or E5M2 by E4M3, A contiguous along k and B transposed ("TN"), in whole 16
/// bytes; C is bf16 or float32.
void check_fp8(const MatmulShape& s) {
  constexpr std::size_t k_bytes = 16;
  if (s.a_is_turned || !s.b_is_turned) {
    fail("a product in FP8 is planned whose operands are not contiguous along k");
  }
  for (const std::size_t count : {s.m, s.n, s.k, s.a_row, s.b_row, s.c_row * size_of(s.type)}) {
    if (count % k_bytes != 0) {
      fail("a product in FP8 is planned of rows that are not whole 16 bytes");
    }
  }
  if (s.a_alignment < k_bytes || s.b_alignment < k_bytes || s.c_alignment < k_bytes) {
    fail("a product in FP8 is planned of memory that is not aligned to 16 bytes");
  }
  if (s.factor_type != DType::u8 || (s.type != DType::bf16 && s.type != DType::f32) || s.is_tf32 ||
      s.batch != 1) {
    fail("a product in FP8 is planned of types that cuBLASLt has none of, or of a batch");
  }
}

/// Of some epilogues, as the real one's, there is none; nor of one in two shapes.
int plan(const CudaStreamHandle* stream, const MatmulShape& shape, void** plan) {
  using Epilogue = Matmul::Epilogue;
  const bool is_fp8 = shape.fp8 != Matmul::Fp8::none;
  if (is_fp8) {
    check_fp8(shape);
  } else if (shape.type != DType::f32 && shape.type != shape.factor_type) {
    fail("a product is planned of types that cuBLASLt has none of");
  }
  if (shape.is_tf32 && shape.factor_type != DType::f32) {
    fail("a product of 16 bits is planned in TF32");
  }
  if (stream->workspace->memory() == nullptr) {
    fail("a product is planned without a workspace");
  }
  const bool is_gelu =
      shape.epilogue == Epilogue::gelu_tanh_bias || shape.epilogue == Epilogue::dgelu_tanh;
  const bool is_known = shape.epilogue <= Epilogue::relu_bias ||
                        (is_gelu && !is_fp8 && shape.type != DType::f32 && shape.c_row % 8 == 0) ||
                        (shape.epilogue == Epilogue::bias_gradient && !is_fp8 &&
                         !shape.accumulate && shape.n % 2 == 0 && shape.type == DType::f32);
  if (!is_known) {
    *plan = nullptr;
    return 0;
  }
  static std::deque<Plan> plans; // One thread at a time makes them.
  ++made;
  *plan = &plans.emplace_back(Plan{stream->gpu, shape});
  return 0;
}

void check_memory(int gpu, const void* memory, unsigned alignment) {
  if (!is_on_gpu(gpu, memory) || reinterpret_cast<std::uintptr_t>(memory) % alignment != 0) {
    fail("a product of memory that is another GPU's, or less aligned than its plan");
  }
}

/// To TF32, to the nearest.
float tf32(float value) {
  constexpr std::uint32_t k_half = 1U << 12U;
  return std::isfinite(value)
             ? std::bit_cast<float>((std::bit_cast<std::uint32_t>(value) + k_half) &
                                    ~(2 * k_half - 1))
             : value;
}

float value_of(DType type, const void* memory, std::size_t at) {
  const auto* const halves = static_cast<const std::uint16_t*>(memory);
  return type == DType::bf16  ? Bf16::widen(halves[at])
         : type == DType::f16 ? Fp16::widen(halves[at])
                              : static_cast<const float*>(memory)[at];
}

void put_value(DType type, void* memory, std::size_t at, float value) {
  if (type == DType::f32) {
    static_cast<float*>(memory)[at] = value;
  } else {
    static_cast<std::uint16_t*>(memory)[at] = Bf16::narrow(value);
  }
}

float gelu_tanh(float u) {
  return 0.5F * u * (1 + std::tanh(0.79788456F * (u + 0.044715F * u * u * u)));
}
float gelu_tanh_slope(float u) {
  const float t = std::tanh(0.79788456F * (u + 0.044715F * u * u * u));
  return 0.5F * (1 + t) + 0.5F * u * (1 - t * t) * 0.79788456F * (1 + 0.134145F * u * u);
}

void compute(const MatmulShape& s, const MatmulMemory& memory, std::size_t number) {
  using Epilogue = Matmul::Epilogue;
  const bool is_fp8 = s.fp8 != Matmul::Fp8::none;
  const auto factor = [&](const void* from, std::size_t at, bool is_a) {
    if (is_fp8) {
      const std::uint8_t code = static_cast<const std::uint8_t*>(from)[at];
      return is_a && s.fp8 == Matmul::Fp8::backward ? E5m2::widen(code) : E4m3::widen(code);
    }
    const float value = value_of(s.factor_type, from, at);
    return s.is_tf32 ? tf32(value) : value;
  };
  const float scale = is_fp8 ? *memory.a_scale * *memory.b_scale : 1;
  const auto a = [&](std::size_t row, std::size_t step) {
    const std::size_t at = s.a_is_turned ? step * s.a_row + row : row * s.a_row + step;
    return factor(memory.a, number * s.a_batch + at, true);
  };
  const auto b = [&](std::size_t step, std::size_t column) {
    const std::size_t at = s.b_is_turned ? column * s.b_row + step : step * s.b_row + column;
    return factor(memory.b, number * s.b_batch + at, false);
  };
  std::vector<float> all_of_b(s.k * s.n);
  for (std::size_t i = 0; i < all_of_b.size(); ++i) {
    all_of_b[i] = b(i / s.n, i % s.n);
  }
  std::vector<float> sums(s.n);
  for (std::size_t row = 0; row < s.m; ++row) {
    std::fill(sums.begin(), sums.end(), 0.0F);
    for (std::size_t i = 0; i < s.k; ++i) {
      const float left = a(row, i);
      const float* const right = all_of_b.data() + i * s.n;
      for (std::size_t column = 0; column < s.n; ++column) {
        sums[column] += left * right[column];
      }
    }
    for (std::size_t column = 0; column < s.n; ++column) {
      float sum = scale * sums[column];
      if (has_bias(s.epilogue)) {
        sum += value_of(is_fp8 ? DType::bf16 : s.type, memory.with, column);
      }
      if (s.epilogue == Epilogue::relu_bias && sum < 0) {
        sum = 0;
      }
      const std::size_t at = number * s.c_batch + row * s.c_row + column;
      if (s.epilogue == Epilogue::gelu_tanh_bias) {
        put_value(s.type, memory.beside, at, sum);
        sum = gelu_tanh(sum);
      } else if (s.epilogue == Epilogue::dgelu_tanh) {
        sum *= gelu_tanh_slope(value_of(s.type, memory.with, at));
      }
      sum += s.accumulate ? value_of(s.type, memory.added, at) : 0;
      put_value(s.type, memory.c, at, sum);
    }
    if (s.epilogue == Epilogue::bias_gradient) {
      float& to = static_cast<float*>(memory.beside)[row];
      to = 0;
      for (std::size_t i = 0; i < s.k; ++i) {
        to += a(row, i);
      }
    }
  }
}

void flip_a_bit(void* memory) { *static_cast<std::uint8_t*>(memory) ^= 1U; }

int run(void* plan, const CudaStreamHandle* stream, const MatmulMemory& memory) {
  const auto& [gpu, shape] = *static_cast<Plan*>(plan);
  check_memory(gpu, memory.a, shape.a_alignment);
  check_memory(gpu, memory.b, shape.b_alignment);
  check_memory(gpu, memory.c, shape.c_alignment);
  check_memory(gpu, memory.added, shape.c_alignment);
  if (stream->gpu != gpu || !is_on_gpu(gpu, stream->workspace->memory())) {
    fail("a product on another GPU's stream");
  }
  if (shape.fp8 != Matmul::Fp8::none) {
    ++run_in_fp8;
    check_memory(gpu, memory.a_scale, alignof(float));
    check_memory(gpu, memory.b_scale, alignof(float));
  }
  static std::atomic<int> products{0};
  const bool is_wrong =
      gpu == number("DTRAIN_FAKE_FLIP", -1) && ++products >= number("DTRAIN_FAKE_FLIP_FROM", 1);
  put(*stream, [shape = shape, memory, is_wrong] {
    for (std::size_t i = 0; i < shape.batch; ++i) {
      compute(shape, memory, i);
    }
    if (is_wrong) {
      flip_a_bit(memory.c);
    }
  });
  return 0;
}

} // namespace

int blas_plans() { return made; }
int fp8_products() { return run_in_fp8; }

} // namespace cuda_on_cpu

const trainer::Blas* trainer::find_blas() {
  static const Blas blas = {cuda_on_cpu::plan, cuda_on_cpu::run};
  return std::getenv("DTRAIN_FAKE_BLAS") == nullptr ? nullptr : &blas;
}
