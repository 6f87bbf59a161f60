// When products in FP8 round an operand again, and when they take the copy or the magnitude that
// they have, by the kernels put: the plug-in's source run on the CPU.
#include <doctest/doctest.h>

#include <memory>
#include <vector>

#include "tests/cuda_on_cpu/runtime.h"
#include "tests/unit/cuda/alike.h"
#include "tests/unit/variable.h"

using namespace trainer;
using namespace trainer::test;
using unit::Variable;
using Epilogue = Matmul::Epilogue;

namespace {

std::unique_ptr<CudaDevice> make_fp8_gpu() {
  auto gpu = make_gpu();
  gpu->multiply_in(DType::bf16);
  REQUIRE(gpu->set_matmul_precision(MatmulPrecision::fp8));
  return gpu;
}

/// How many kernels a product puts.
int kernels_of(CudaDevice& gpu, const Matmul& s) {
  const int before = cuda_on_cpu::calls("kernel");
  gpu.kernels().matmul(gpu.stream(), s);
  return cuda_on_cpu::calls("kernel") - before;
}

} // namespace

TEST_CASE("a gradient is rounded to FP8 once for both of its products, an input once for all") {
  const Variable with_blas("DTRAIN_FAKE_BLAS", "1");
  const auto gpu = make_fp8_gpu();
  constexpr DenseShape k_shape{32, 48, 64};
  On<float> x(*gpu, numbers(32 * 48, 1));
  On<float> weight(*gpu, numbers(64 * 48, 2));
  On<float> dy(*gpu, numbers(32 * 64, 3));
  On<float> dx(*gpu, std::vector<float>(32 * 48));
  On<float> dweight(*gpu, std::vector<float>(64 * 48));
  const auto kernels = [&](const Matmul& s) { return kernels_of(*gpu, s); };
  const Matmul of_weight =
      k_shape.backward_weight(x.data(), dy.data(), false, dweight.data(), nullptr);
  const Matmul of_x = k_shape.backward_input(dy.data(), weight.data(), false, dx.data());
  CHECK(kernels(of_weight) == 5); // A scale and a copy of each operand, and the product.
  CHECK(kernels(of_x) == 3);
  CHECK(kernels(of_x) == 1);
  On<float> other_dy(*gpu, numbers(32 * 64, 4));
  CHECK(kernels(of_weight) == 5); // The copies above were before the other's memory was written.
  CHECK(kernels(of_x) == 3);
  CHECK(kernels(k_shape.backward_weight(x.data(), other_dy.data(), false, dweight.data(),
                                        nullptr)) == 3);
  gpu->stream().clear(dx.data(), 4);
  CHECK(kernels(of_x) == 5);
}

TEST_CASE("what an epilogue of ours writes is rounded to FP8 by the magnitude that it has found") {
  const Variable with_blas("DTRAIN_FAKE_BLAS", "1");
  const auto gpu = make_fp8_gpu();
  constexpr std::size_t k_rows = 32;
  constexpr std::size_t k_width = 48;
  constexpr std::size_t k_inner = 64;
  constexpr DenseShape k_in{k_rows, k_width, k_inner};
  constexpr DenseShape k_out{k_rows, k_inner, k_width};
  Activations x(*gpu, numbers(k_rows * k_width, 1));
  Activations dy(*gpu, numbers(k_rows * k_width, 2));
  Activations u(*gpu, numbers(k_rows * k_inner, 3));
  Activations inner(*gpu, Values(k_rows * k_inner));
  On<float> weight(*gpu, numbers(k_width * k_inner, 4));
  On<float> dweight(*gpu, Values(k_width * k_inner));
  On<float> dbias(*gpu, Values(k_inner));
  const auto kernels = [&](const Matmul& s) { return kernels_of(*gpu, s); };
  Matmul of_inner = k_out.backward_input(dy.pointer(), weight.data(), false, inner.pointer());
  of_inner.epilogue = Epilogue::dgelu_tanh;
  of_inner.with = u.pointer();
  CHECK(kernels(of_inner) == 6); // A magnitude and a copy of each operand, the product, its end.
  const Matmul of_weight =
      k_in.backward_weight(x.pointer(), inner.pointer(), false, dweight.data(), dbias.data());
  CHECK(kernels(of_weight) == 4); // No magnitude of `inner`; its copy has the bias's gradient.
  const Values found = dweight.read();
  const Values of_bias = dbias.read();
  gpu->stream().clear(dweight.data(), sizeof(float)); // All is forgotten.
  CHECK(kernels(of_weight) == 5);
  CHECK(dweight.read() == found);
  CHECK(dbias.read() == of_bias);
}

TEST_CASE("what stays unchanged is searched for its magnitude once, whatever else is rounded") {
  const Variable with_blas("DTRAIN_FAKE_BLAS", "1");
  const auto gpu = make_fp8_gpu();
  constexpr std::size_t k_side = 32;
  constexpr DenseShape k_shape{k_side, k_side, k_side};
  constexpr std::size_t k_all = k_side * k_side;
  std::vector<Activations> inputs;
  for (std::uint32_t i = 0; i < 6; ++i) { // More than there are copies.
    inputs.emplace_back(*gpu, numbers(k_all, i));
  }
  Activations y(*gpu, Values(k_all));
  On<float> weight(*gpu, numbers(k_all, 7));
  On<float> gain(*gpu, Values(k_side, 2));
  On<float> shift(*gpu, Values(k_side, 0));
  On<float> moments(*gpu, Values(2 * k_side));
  const auto forward = [&](const Activations& x) {
    return kernels_of(*gpu,
                      k_shape.forward(x.pointer(), weight.data(), {}, y.pointer(), Epilogue::none));
  };
  const auto norm = [&](const Activations& x, const Activations& to) {
    gpu->kernels().text->norm(gpu->stream(), {k_side, k_side, 1e-5F}, x.pointer(), gain.data(),
                              shift.data(), to.pointer(), moments.data());
  };
  CHECK(forward(inputs[0]) == 5);
  for (std::size_t i = 1; i < inputs.size(); ++i) {
    CHECK(forward(inputs[i]) == 3);
  }
  norm(inputs[2], y);
  CHECK(forward(inputs[0]) == 2); // A copy of the input, by the magnitude known, and the product.
  norm(inputs[2], inputs[0]);
  CHECK(forward(inputs[0]) == 3);
  const Values found = y.read(); // By a copy, after which all is forgotten.
  CHECK(forward(inputs[0]) == 5);
  CHECK(y.read() == found);
}

TEST_CASE("what a kernel of text models writes is rounded to FP8 again, and nothing else is") {
  const Variable with_blas("DTRAIN_FAKE_BLAS", "1");
  const auto gpu = make_fp8_gpu();
  constexpr std::size_t k_side = 32;
  constexpr DenseShape k_shape{k_side, k_side, k_side};
  constexpr std::size_t k_all = k_side * k_side;
  const Activations x(*gpu, numbers(k_all, 1));
  const Activations other(*gpu, numbers(k_all, 2));
  const Activations key(*gpu, numbers(k_all, 3));
  const Activations value(*gpu, numbers(k_all, 4));
  const Activations elsewhere(*gpu, Values(k_all));
  const Activations dquery(*gpu, Values(k_all));
  const Activations y(*gpu, Values(k_all));
  On<float> weight(*gpu, numbers(k_all, 5));
  On<float> gain(*gpu, Values(k_side, 1));
  On<float> shift(*gpu, Values(k_side));
  On<float> dgain(*gpu, Values(k_side));
  On<float> dshift(*gpu, Values(k_side));
  On<float> moments(*gpu, Values(2 * k_side, 1));
  On<float> scale(*gpu, Values{1});
  On<std::uint16_t> bits(*gpu, std::vector<std::uint16_t>(k_all));
  On<std::int32_t> masked(*gpu, std::vector<std::int32_t>(k_side));
  On<Score> score(*gpu, std::vector<Score>(1));
  Stream& stream = gpu->stream();
  const TextKernels& text = *gpu->kernels().text;
  constexpr NormShape k_rows{k_side, k_side, 1e-5F};
  constexpr MaskedShape k_slots{k_side, 1, 1, k_side};
  constexpr AttentionShape k_attention{2, 16, 2, 16};
  On<std::int32_t> lengths(*gpu, {16, 16});
  On<float> p(*gpu, Values(text.attention_room(stream, k_attention)));
  On<float> room(*gpu, Values(text.attention_room(stream, k_attention)));
  const auto kernels = [&] { // Of a product of x.
    return kernels_of(*gpu,
                      k_shape.forward(x.pointer(), weight.data(), {}, y.pointer(), Epilogue::none));
  };
  kernels();
  const auto check = [&](const char* what, int expected, const auto& write) {
    CHECK(kernels() == 1);
    write();
    CAPTURE(what);
    CHECK(kernels() == expected);
  };
  const auto check_all = [&](const Activations& to, int expected) {
    check("norm", expected, [&] {
      text.norm(stream, k_rows, other.pointer(), gain.data(), shift.data(), to.pointer(),
                moments.data());
    });
    check("add_and_norm", expected, [&] {
      text.add_and_norm(stream, k_rows, {}, other.pointer(), key.pointer(), gain.data(),
                        shift.data(), to.pointer(), moments.data());
    });
    check("add_and_norm of", expected, [&] {
      text.add_and_norm(stream, k_rows, {}, other.pointer(), to.pointer(), gain.data(),
                        shift.data(), key.pointer(), moments.data());
    });
    check("norm_backward", expected, [&] {
      text.norm_backward(stream, k_rows, other.pointer(), moments.data(), gain.data(), false,
                         to.pointer(), {}, dgain.data(), dshift.data());
    });
    check("norm_backward onto", expected, [&] {
      text.norm_backward(stream, k_rows, other.pointer(), moments.data(), gain.data(), false,
                         key.pointer(), to.pointer(), dgain.data(), dshift.data());
    });
    check("keep_bits", 1, [&] { text.keep_bits(stream, {1, 2, 0, 9}, k_all, bits.data()); });
    check("drop", expected, [&] {
      text.drop(stream, {1, k_all}, {}, other.pointer(), to.pointer());
    });
    check("drop_and_add", expected, [&] {
      text.drop_and_add(stream, {1, k_all}, {}, other.pointer(), to.pointer());
    });
    check("gelu_backward", expected,
          [&] { text.gelu_backward(stream, k_all, other.pointer(), to.pointer()); });
    check("gather_masked", expected, [&] {
      text.gather_masked(stream, k_slots, masked.data(), other.pointer(), to.pointer());
    });
    check("scatter_masked", expected, [&] {
      text.scatter_masked(stream, k_slots, masked.data(), other.pointer(), to.pointer());
    });
    check("masked_cross_entropy", expected, [&] {
      text.masked_cross_entropy(stream, k_slots, masked.data(), masked.data(), scale.data(),
                                to.pointer(), score.data());
    });
    const Heads<ConstTypedPointer> heads{other.pointer(), key.pointer(), value.pointer()};
    check("attention", expected, [&] {
      text.attention(stream, k_attention, lengths.data(), {}, heads, p.data(), to.pointer());
    });
    for (int which = 0; which < 3; ++which) {
      const auto change = [&](int i) { return i == which ? to.pointer() : dquery.pointer(); };
      check("attention_backward", expected, [&] {
        text.attention_backward(stream, k_attention, lengths.data(), {}, heads, p.data(),
                                y.pointer(), other.pointer(), room.data(),
                                {change(0), change(1), change(2)});
      });
    }
  };
  check_all(x, 3);
  check_all(elsewhere, 1);
}
