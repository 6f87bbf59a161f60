// Epilogues of products: applied by our own products, and by a kernel of its own after a product of
// the library's that has them not.
#pragma once

#include "trainer/device/cuda/fours.cuh"
#include "trainer/device/cuda/products/fp8.h"
#include "trainer/device/cuda/products/gelu.cuh"
#include "trainer/device/matmul.h"

namespace trainer {
namespace {

DTRAIN_ON_BOTH constexpr bool is_gelu(Matmul::Epilogue epilogue) {
  return epilogue == Matmul::Epilogue::gelu_bias || epilogue == Matmul::Epilogue::gelu_tanh_bias;
}
/// Whether `with` is u.
DTRAIN_ON_BOTH constexpr bool is_slope(Matmul::Epilogue epilogue) {
  return epilogue >= Matmul::Epilogue::drelu && epilogue <= Matmul::Epilogue::dgelu_tanh;
}

/// A value of C after the epilogue, `value` before it, but with the bias; u: its value of u.
template <typename Value>
__device__ float ended(Matmul::Epilogue epilogue, float value, float u) {
  using Epilogue = Matmul::Epilogue;
  switch (epilogue) {
  case Epilogue::relu_bias:
    return value < 0 ? 0.0F : value; // Keeps a NaN.
  case Epilogue::gelu_bias:
    return value * Gelu<Value>::share(value);
  case Epilogue::gelu_tanh_bias:
    return value * Gelu<Value>::tanh_share(value);
  case Epilogue::drelu:
    return u > 0 ? value : 0.0F;
  case Epilogue::dgelu:
    return value * Gelu<Value>::slope(u);
  case Epilogue::dgelu_tanh:
    return value * Gelu<Value>::tanh_slope(u);
  default:
    return value;
  }
}

/// Calls act.operator()<Which>(), to launch the kernel for an epilogue.
template <typename Act>
int by_epilogue(Matmul::Epilogue which, const Act& act) {
  using Epilogue = Matmul::Epilogue;
  switch (which) {
  case Epilogue::relu_bias:
    return act.template operator()<Epilogue::relu_bias>();
  case Epilogue::gelu_bias:
    return act.template operator()<Epilogue::gelu_bias>();
  case Epilogue::gelu_tanh_bias:
    return act.template operator()<Epilogue::gelu_tanh_bias>();
  case Epilogue::drelu:
    return act.template operator()<Epilogue::drelu>();
  case Epilogue::dgelu:
    return act.template operator()<Epilogue::dgelu>();
  case Epilogue::dgelu_tanh:
    return act.template operator()<Epilogue::dgelu_tanh>();
  default:
    return act.template operator()<Epilogue::bias>();
  }
}

/// The epilogue of a Matmul whose C has this type.
template <typename Value>
struct Ending {
  using Epilogue = Matmul::Epilogue;
  Epilogue epilogue = Epilogue::none;
  const void* bias = nullptr;
  bool is_bf16_bias = false;
  const Value* u = nullptr;
  Value* beside = nullptr;

  static Ending of(const Matmul& s) {
    const bool has_u = is_slope(s.epilogue);
    return {s.epilogue, has_u ? nullptr : s.with.memory, s.with.type == DType::bf16,
            has_u ? s.with.as<Value>() : nullptr,
            s.epilogue == Epilogue::bias_gradient ? nullptr : s.beside.as<Value>()};
  }

  /// The biases of N columns from `column` on.
  template <int N>
  __device__ Pack<float, N> biases(std::size_t column) const {
    return is_bf16_bias ? load_floats<N>(static_cast<const Bf16Value*>(bias) + column)
                        : load_floats<N>(static_cast<const float*>(bias) + column);
  }
  /// Whether it can be applied to whole packs of C.
  __device__ bool is_of_packs() const {
    return are_packs<k_pack<Value>>(u, beside) && are_fours(static_cast<const float*>(bias));
  }
  /// Applies the epilogue to value number `at` of C, in `column`.
  __device__ float operator()(float value, std::size_t at, std::size_t column) const {
    if (has_bias(epilogue)) {
      value += biases<1>(column).at[0];
    }
    if (is_gelu(epilogue)) {
      beside[at] = value;
    }
    return ended<Value>(epilogue, value, is_slope(epilogue) ? static_cast<float>(u[at]) : 0.0F);
  }
};

/// Packs of N columns; a thread comes from one to its next without a division. Returns the bits of
/// the largest magnitude that it has written to C.
template <Matmul::Epilogue Which, int N, typename Value>
__device__ unsigned end_packs(std::size_t m, std::size_t n, Value* c, const Ending<Value>& ending) {
  const std::size_t across = n / N;
  const std::size_t count = m * across;
  const std::size_t step = all_threads();
  const std::size_t columns_on = step % across;
  std::size_t column = first_item() % across;
  unsigned largest = 0;
  for (std::size_t at = first_item(); at < count; at += step) {
    Pack<float, N> x = load_floats<N>(c + at * N);
    Pack<float, N> u = {};
    if constexpr (is_slope(Which)) {
      u = load_floats<N>(ending.u + at * N);
    }
    if constexpr (has_bias(Which)) {
      const Pack<float, N> bias = ending.template biases<N>(column * N);
      DTRAIN_UNROLL
      for (int i = 0; i < N; ++i) {
        x.at[i] += bias.at[i];
      }
    }
    if constexpr (is_gelu(Which)) {
      store_floats(x, ending.beside + at * N);
    }
    DTRAIN_UNROLL
    for (int i = 0; i < N; ++i) {
      x.at[i] = ended<Value>(Which, x.at[i], u.at[i]);
    }
    largest = larger_of(x, largest);
    store_floats(x, c + at * N);
    column += columns_on;
    column -= column >= across ? across : 0;
  }
  return float_bits(Value(bits_float(largest))); // Rounded as the value itself.
}

/// Reads and writes a value of C, and reads one of u or writes one beside. If IsForFp8, a product
/// in FP8 follows, and each block leaves the largest magnitude that it has written.
template <Matmul::Epilogue Which, bool IsForFp8, typename Value>
__global__ void __launch_bounds__(k_threads)
    epilogue_kernel(std::size_t m, std::size_t n, Value* c, Ending<Value> ending, Fp8Largest* to) {
  constexpr int k_wide = k_pack<Value>;
  const bool is_wide = n % k_wide == 0 && are_packs<k_wide>(c) && ending.is_of_packs();
  unsigned largest =
      is_wide ? end_packs<Which, k_wide>(m, n, c, ending) : end_packs<Which, 1>(m, n, c, ending);
  if constexpr (IsForFp8) {
    DYNAMIC_SHARED(unsigned, room);
    largest = block_largest(largest, room);
    if (threadIdx.x == 0) {
      to->of_block[blockIdx.x] = largest;
    }
  }
}

} // namespace
} // namespace trainer
