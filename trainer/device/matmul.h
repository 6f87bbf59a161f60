// Matrix products with epilogues, on every device: fully connected layers, forward and backward,
// and the steps of Muon consist of them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "trainer/device/typed_pointer.h"
#include "trainer/on_both.h"

namespace trainer {

/// How a device computes products (Device::set_matmul_precision()): highest, as their operands
/// are; high, with float32 operands rounded to TF32 (8 bits of exponent, 10 of mantissa); or with
/// those of fully connected layers rounded to FP8 (Matmul::Fp8) where it multiplies in bf16. Sums
/// stay float32.
enum class MatmulPrecision : std::int64_t { highest, high, fp8 };

/// C (m, n) = A (m, k) · B (k, n), all row-major; m, n and k are at least 1. Other (m, n) matrices
/// have the stride and type of C; a gradient of a bias is float32; a bias is float32, or bf16 if B
/// is. Sums are float32 for all types.
struct Matmul {
  /// What is applied before C is written. `with` is read, `beside` is written.
  enum class Epilogue : int {
    none,
    bias,           ///< C + bias; with: bias (n)
    relu_bias,      ///< relu(C + bias), which keeps a NaN
    gelu_bias,      ///< gelu(u), u = C + bias, the exact one: u · Φ(u); beside: u (m, n)
    gelu_tanh_bias, ///< The tanh approximation: u · (1 + tanh(√(2/π)·(u + 0.044715·u³))) / 2
    drelu,          ///< C where u > 0, else 0; with: u (m, n), the output of a relu
    dgelu,          ///< C · gelu'(u); with: u (m, n)
    dgelu_tanh,
    bias_gradient, ///< C; beside: the sums of the rows of A (m); A is transposed
  };
  /// To what FP8 may round A and B (MatmulPrecision::fp8). One rule says which products it does:
  /// those of fully connected layers, but not of a vocabulary's (DenseShape), where m, n, k and row
  /// strides are multiples of 16 and addresses of 16 bytes. All others are as without it.
  enum class Fp8 : int {
    none,
    forward,  ///< Both to E4M3.
    backward, ///< A, a gradient, to E5M2, and B to E4M3.
  };

  std::size_t m;
  std::size_t n;
  std::size_t k;
  bool a_is_turned = false; ///< A is transposed, (k, m) in memory,
  bool b_is_turned = false; ///< and B (n, k).
  /// Float32 operands are rounded to the type of Device::multiply_in().
  bool is_rounded = false;
  Fp8 fp8 = Fp8::none;
  Epilogue epilogue = Epilogue::none;
  /// C += A · B, and likewise for what bias_gradient writes; only with none and bias_gradient.
  bool accumulate = false;
  ConstTypedPointer a = {};
  ConstTypedPointer b = {};
  TypedPointer c = {};
  ConstTypedPointer with = {};
  TypedPointer beside = {};
  /// If not null, (m, n) values to add to C; only on GPUs, with none or bias, and without a batch.
  ConstTypedPointer plus = {};

  // Row strides, of A and B as they are in memory; 0: contiguous.
  std::size_t a_row = 0;
  std::size_t b_row = 0;
  std::size_t c_row = 0;
  /// If not 0, B may be treated as having this many rows, padded with zeros (in bf16 they are there
  /// in memory). Then A has zeros behind its columns, or with B transposed, C has room behind its
  /// columns, undefined afterwards.
  std::size_t b_rows = 0;
  // Number of products, and the distances between their A, B and C; a batch has no epilogue.
  std::size_t batch = 1;
  std::size_t a_batch = 0;
  std::size_t b_batch = 0;
  std::size_t c_batch = 0;

  /// Product `i` of the batch alone, with explicit strides.
  Matmul one(std::size_t i) const {
    Matmul s = *this;
    s.a_row = a_row != 0 ? a_row : a_is_turned ? m : k;
    s.b_row = b_row != 0 ? b_row : b_is_turned ? k : n;
    s.c_row = c_row != 0 ? c_row : n;
    s.a = s.a + i * a_batch;
    s.b = s.b + i * b_batch;
    s.c = s.c + i * c_batch;
    s.batch = 1;
    return s;
  }
};

/// Whether `with` is a bias.
DTRAIN_ON_BOTH constexpr bool has_bias(Matmul::Epilogue epilogue) {
  return epilogue >= Matmul::Epilogue::bias && epilogue <= Matmul::Epilogue::gelu_tanh_bias;
}

/// The products of a fully connected layer, y = x · weightᵀ + bias: x (B, I), weight (O, I),
/// y (B, O), and of their gradients dx, dweight, dy. Letters: B rows, I inputs, O outputs.
struct DenseShape {
  std::size_t rows;
  std::size_t inputs;
  std::size_t outputs;
  bool takes_fp8 = true;

  constexpr Matmul forward(ConstTypedPointer x, ConstTypedPointer weight, ConstTypedPointer bias,
                           TypedPointer y, Matmul::Epilogue epilogue = Matmul::Epilogue::bias,
                           TypedPointer beside = {}) const {
    return {.m = rows,
            .n = outputs,
            .k = inputs,
            .b_is_turned = true,
            .is_rounded = true,
            .fp8 = takes_fp8 ? Matmul::Fp8::forward : Matmul::Fp8::none,
            .epilogue = epilogue,
            .a = x,
            .b = weight,
            .c = y,
            .with = bias,
            .beside = beside};
  }
  /// dweight = dyᵀ · x, and dbias = the sum of the rows of dy (null: none); += with `accumulate`.
  constexpr Matmul backward_weight(ConstTypedPointer x, ConstTypedPointer dy, bool accumulate,
                                   float* dweight, float* dbias) const {
    return {.m = outputs,
            .n = inputs,
            .k = rows,
            .a_is_turned = true,
            .is_rounded = true,
            .fp8 = takes_fp8 ? Matmul::Fp8::backward : Matmul::Fp8::none,
            .epilogue = dbias == nullptr ? Matmul::Epilogue::none : Matmul::Epilogue::bias_gradient,
            .accumulate = accumulate,
            .a = dy,
            .b = x,
            .c = dweight,
            .beside = dbias};
  }
  /// dx = dy · weight, or +=.
  constexpr Matmul backward_input(ConstTypedPointer dy, ConstTypedPointer weight, bool accumulate,
                                  TypedPointer dx) const {
    return {.m = rows,
            .n = inputs,
            .k = outputs,
            .is_rounded = true,
            .fp8 = takes_fp8 ? Matmul::Fp8::backward : Matmul::Fp8::none,
            .accumulate = accumulate,
            .a = dy,
            .b = weight,
            .c = dx};
  }
  /// The gradient before an activation, whose gradient at u (B, I) is `epilogue`.
  constexpr Matmul backward_input(ConstTypedPointer dy, ConstTypedPointer weight,
                                  Matmul::Epilogue epilogue, ConstTypedPointer u,
                                  TypedPointer dx) const {
    Matmul product = backward_input(dy, weight, false, dx);
    product.epilogue = epilogue;
    product.with = u;
    return product;
  }
};

} // namespace trainer
