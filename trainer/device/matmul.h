// A product of matrices and what follows it, which every device has: fully connected layers are
// made of these, forward and backward, and Muon's steps.
#pragma once

#include <cstddef>

#include "trainer/device/typed_pointer.h"
#include "trainer/on_both.h"

namespace trainer {

/// C (m, n) = A (m, k) · B (k, n), all row-major; none of m, n and k is 0. What is (m, n) beside C
/// has its rows where C has them, and C's type; a bias' gradient is of float32, and so is a bias,
/// or of bf16 as B is. Sums are in float32 whatever the types.
struct Matmul {
  /// What follows it, before C is written. `with` is read, `beside` written.
  enum class Epilogue : int {
    none,
    bias,           ///< C + bias; with: bias (n)
    relu_bias,      ///< relu(C + bias); a NaN stays one
    gelu_bias,      ///< gelu(u), u = C + bias, the exact one: u · Φ(u); beside: u (m, n)
    gelu_tanh_bias, ///< The same by tanh: u · (1 + tanh(√(2/π)·(u + 0.044715·u³))) / 2
    drelu,          ///< C where u is above 0, else 0; with: u (m, n), what a relu has made
    dgelu,          ///< C · gelu'(u); with: u (m, n)
    dgelu_tanh,
    bias_gradient, ///< C; beside: the sums of A's rows (m); A is turned
  };

  std::size_t m;
  std::size_t n;
  std::size_t k;
  bool a_is_turned = false; ///< In memory A is (k, m),
  bool b_is_turned = false; ///< and B (n, k).
  /// What is float32 of A and B, to what Device::multiply_in() says.
  bool is_rounded = false;
  Epilogue epilogue = Epilogue::none;
  /// C += A · B, and so what bias_gradient writes; of none and bias_gradient alone.
  bool accumulate = false;
  ConstTypedPointer a = {};
  ConstTypedPointer b = {};
  TypedPointer c = {};
  ConstTypedPointer with = {};
  TypedPointer beside = {};
  /// Not null: this is added to C, (m, n), on a GPU; of none and bias alone, and no batch.
  ConstTypedPointer plus = {};

  // From a row to the next, of A and B as they are in memory; 0: they lie on end.
  std::size_t a_row = 0;
  std::size_t b_row = 0;
  std::size_t c_row = 0;
  /// Not 0: B may be taken to have so many rows in memory, zeros behind its own, and of bf16 has
  /// them there. Then A has zeros
  /// behind its own columns, or with B turned C has room behind its own, which becomes anything.
  std::size_t b_rows = 0;
  // So many products, whose A, B and C are so far apart; of several none has an epilogue.
  std::size_t batch = 1;
  std::size_t a_batch = 0;
  std::size_t b_batch = 0;
  std::size_t c_batch = 0;

  /// Number `i` of the batch, alone and with no stride 0.
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

  constexpr Matmul forward(ConstTypedPointer x, ConstTypedPointer weight, ConstTypedPointer bias,
                           TypedPointer y, Matmul::Epilogue epilogue = Matmul::Epilogue::bias,
                           TypedPointer beside = {}) const {
    return {.m = rows,
            .n = outputs,
            .k = inputs,
            .b_is_turned = true,
            .is_rounded = true,
            .epilogue = epilogue,
            .a = x,
            .b = weight,
            .c = y,
            .with = bias,
            .beside = beside};
  }
  /// dweight = dyᵀ · x, and dbias = the sum of dy's rows, null: none; or += with `accumulate`.
  constexpr Matmul backward_weight(ConstTypedPointer x, ConstTypedPointer dy, bool accumulate,
                                   float* dweight, float* dbias) const {
    return {.m = outputs,
            .n = inputs,
            .k = rows,
            .a_is_turned = true,
            .is_rounded = true,
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
            .accumulate = accumulate,
            .a = dy,
            .b = weight,
            .c = dx};
  }
  /// Of what was before an activation: `epilogue` is its gradient, of u (B, I).
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
