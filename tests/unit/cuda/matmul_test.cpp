// Products on a GPU, their source run on the CPU, by the plug-in's own kernels and by cuBLASLt.
#include "tests/cuda_on_cpu/runtime.h"
#include "tests/unit/cuda/alike.h"
#include "tests/unit/trainer/device/matmul_oracle.h"

#include <array>
#include <cmath>
#include <cstdlib>

using namespace trainer;
using namespace trainer::test;

TEST_CASE("a product on a GPU is float64's, whatever its shape and epilogue") {
  const auto made_gpu = make_gpu();
  CudaDevice& gpu = *made_gpu;
  check_all_matmuls(gpu);
}

/// While one lives, there is a cuBLASLt: on a GPU the machine's own.
class WithBlas {
 public:
  WithBlas() { setenv("DTRAIN_FAKE_BLAS", "1", 1); }
  ~WithBlas() { unsetenv("DTRAIN_FAKE_BLAS"); }
};

TEST_CASE("a product of what is rounded to 16 bits on a GPU is float64's but for that") {
  const WithBlas with_blas;
  for (const DType type : {DType::bf16, DType::f16}) {
    const auto gpu = make_gpu();
    gpu->multiply_in(type);
    check_all_matmuls(*gpu, true);
  }
}

TEST_CASE("a factor that fp16 has no number for makes what it takes part in infinite") {
  const WithBlas with_blas;
  constexpr std::size_t k_side = 8;
  const auto gpu = make_gpu();
  gpu->multiply_in(DType::f16);
  Values a(k_side * k_side, 1);
  a[0] = 65520;
  a[k_side] = 65519; // Which becomes 65504.
  On<float> on_a(*gpu, a);
  On<float> on_b(*gpu, Values(k_side * k_side, 1));
  On<float> c(*gpu, Values(k_side * k_side));
  gpu->kernels().matmul(gpu->stream(), {.m = k_side,
                                        .n = k_side,
                                        .k = k_side,
                                        .is_rounded = true,
                                        .a = on_a.data(),
                                        .b = on_b.data(),
                                        .c = c.data()});
  const Values found = c.read();
  for (std::size_t i = 0; i < found.size(); ++i) {
    CAPTURE(i);
    CHECK(found[i] == (i < k_side ? INFINITY : i < 2 * k_side ? 65511.0F : k_side));
  }
}

TEST_CASE(
    "a product in TF32 is float64's but for 10 bits of its factors, and float32's by default") {
  const WithBlas with_blas;
  constexpr std::size_t k_side = 64;
  const Values a = numbers(k_side * k_side, 1);
  const Values b = numbers(k_side * k_side, 2);
  const auto gpu = make_gpu();
  const auto worst = [&] { // Of what a value may be wrong by: of all of its steps' sizes.
    On<float> on_a(*gpu, a);
    On<float> on_b(*gpu, b);
    On<float> on_c(*gpu, Values(k_side * k_side));
    gpu->kernels().matmul(gpu->stream(), {.m = k_side,
                                          .n = k_side,
                                          .k = k_side,
                                          .a = on_a.data(),
                                          .b = on_b.data(),
                                          .c = on_c.data()});
    const Values found = on_c.read();
    double most = 0;
    for (std::size_t i = 0; i < found.size(); ++i) {
      double exact = 0;
      double size = 0;
      for (std::size_t step = 0; step < k_side; ++step) {
        const double product =
            double{a[i / k_side * k_side + step]} * double{b[step * k_side + i % k_side]};
        exact += product;
        size += std::abs(product);
      }
      most = std::max(most, std::abs(double{found[i]} - exact) / size);
    }
    return most;
  };
  constexpr double k_float32 = 1e-6;
  const double k_tf32 = std::ldexp(1.0, -9); // Twice the last bit's half, or the bit cut off.
  CHECK(worst() < k_float32);
  REQUIRE(gpu->set_matmul_precision(MatmulPrecision::high));
  CHECK(worst() > k_float32);
  CHECK(worst() < k_tf32);
  gpu->set_matmul_precision(MatmulPrecision::highest);
  CHECK(worst() < k_float32);
}

#ifndef DTRAIN_ON_GPU
TEST_CASE("a stream takes memory for cuBLASLt at its first product: one of copies takes none") {
  const WithBlas with_blas;
  const auto gpu = make_gpu();
  constexpr std::size_t k_side = 16;
  On<float> a(*gpu, numbers(k_side * k_side, 1));
  On<float> c(*gpu, Values(k_side * k_side));
  const std::size_t before = gpu->most_allocated();
  gpu->make_stream()->copy(a.data(), c.data(), k_side * sizeof(float));
  CHECK(gpu->most_allocated() == before);
  gpu->kernels().matmul(
      gpu->stream(),
      {.m = k_side, .n = k_side, .k = k_side, .a = a.data(), .b = a.data(), .c = c.data()});
  CHECK(gpu->most_allocated() == before + gpu->memory_for_products(k_side * k_side));
}

TEST_CASE("a GPU has TF32 from compute capability 8.0 on, by cuBLASLt alone") {
  CHECK(!make_gpu()->set_matmul_precision(MatmulPrecision::high));
  const WithBlas with_blas;
  CHECK(make_gpu()->set_matmul_precision(MatmulPrecision::high));
  setenv("DTRAIN_FAKE_COMPUTE", "7", 1);
  const auto old = make_gpu();
  unsetenv("DTRAIN_FAKE_COMPUTE");
  CHECK(!old->set_matmul_precision(MatmulPrecision::high));
}

TEST_CASE("the peak of a GPU is that of what it multiplies in") {
  const WithBlas with_blas;
  const auto gpu = make_gpu(); // 3 multiprocessors of an H100's kind, at 1 GHz.
  const auto check = [&](double tera, const std::string& type) {
    CHECK(gpu->peak_flops().a_second == doctest::Approx(tera * 1e12));
    CHECK(gpu->peak_flops().type == type);
  };
  check(0.768, "float32");
  gpu->set_matmul_precision(MatmulPrecision::high);
  check(6.144, "TF32");
  gpu->multiply_in(DType::bf16);
  check(12.288, "bf16");
  gpu->multiply_in(DType::f16);
  check(12.288, "fp16");
  gpu->set_matmul_precision(MatmulPrecision::fp8);
  check(12.288, "fp16"); // FP8 goes with bf16.
  gpu->multiply_in(DType::bf16);
  check(24.576, "FP8");
}

TEST_CASE("the peak of a workstation's GPU is known too") {
  const WithBlas with_blas;
  setenv("DTRAIN_FAKE_COMPUTE", "12", 1);
  const auto gpu = make_gpu();
  unsetenv("DTRAIN_FAKE_COMPUTE");
  gpu->multiply_in(DType::bf16);
  CHECK(gpu->peak_flops().a_second == doctest::Approx(3.072e12));
}
#endif

TEST_CASE("a product of bf16 on a GPU is float64's but for its rounding, by cuBLASLt and without") {
  const auto check = [] {
    const auto gpu = make_gpu();
    gpu->multiply_in(DType::bf16);
    for (const auto& [m, n, k] : {std::array{65, 10, 33}, std::array{16, 64, 40}}) {
      for (const bool is_of_weight : {false, true}) {
        const DType activation = DType::bf16; // And of float32 a weight, or its gradient.
        check_epilogues(*gpu, {.m = static_cast<std::size_t>(m),
                               .n = static_cast<std::size_t>(n),
                               .k = static_cast<std::size_t>(k),
                               .a_is_turned = is_of_weight,
                               .b_is_turned = m == 65,
                               .is_rounded = true,
                               .a = {nullptr, activation},
                               .b = {nullptr, is_of_weight ? activation : DType::f32},
                               .c = {nullptr, is_of_weight ? DType::f32 : activation},
                               .c_row = is_of_weight ? 0 : static_cast<std::size_t>(n + 6)});
      }
    }
  };
  check();
  const WithBlas with_blas;
  check();
}

TEST_CASE("gelu and its slope in bf16 on a GPU are exact but for the rounding of their result") {
  const auto gpu = make_gpu();
  gpu->multiply_in(DType::bf16);
  constexpr std::size_t k_all = 4104; // More than one block's.
  Values x(k_all);
  for (std::size_t i = 0; i < k_all; ++i) {
    x[i] = 24 * static_cast<float>(i) / k_all - 12;
  }
  x[0] = -1e4F;
  x[1] = 1e4F;
  x = rounded(x);
  Activations zeros(*gpu, Values(k_all));
  Activations one(*gpu, Values{1});
  const auto check = [&](Matmul::Epilogue epilogue, const auto& exact) {
    const bool is_slope = epilogue >= Matmul::Epilogue::dgelu;
    Activations there(*gpu, is_slope ? x : Values(k_all, NAN));
    Activations factors(*gpu, Values(k_all, is_slope ? 1 : 0));
    Activations c(*gpu, Values(k_all, NAN));
    On<float> bias(*gpu, x);
    gpu->kernels().matmul(gpu->stream(), {.m = 1,
                                          .n = k_all,
                                          .k = 1,
                                          .epilogue = epilogue,
                                          .a = one.pointer(),
                                          .b = factors.pointer(),
                                          .c = c.pointer(),
                                          .with = is_slope ? ConstTypedPointer(there.pointer())
                                                           : ConstTypedPointer(bias.data()),
                                          .beside = there.pointer()});
    const Values found = c.read();
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < k_all; ++i) {
      const double value = exact(double{x[i]});
      const double bound = std::ldexp(std::abs(value), -8) + 1e-6; // A place of bf16, at most.
      wrong += std::abs(double{found[i]} - value) <= bound ? 0 : 1;
    }
    CAPTURE(static_cast<int>(epilogue));
    CHECK(wrong == 0);
    CHECK(there.read() == x);
  };
  const auto check_all = [&] {
    check(Matmul::Epilogue::gelu_bias, [](double u) { return u * phi(u); });
    check(Matmul::Epilogue::gelu_tanh_bias, [](double u) { return u * gelu_share_at(u); });
    check(Matmul::Epilogue::dgelu, gelu_slope_at);
    check(Matmul::Epilogue::dgelu_tanh, gelu_tanh_slope_at);
  };
  check_all();
  const WithBlas with_blas;
  check_all();
}

TEST_CASE("the library's products in bf16 end like our own, in rows of whole packs and in others") {
  const WithBlas with_blas;
  const auto gpu = make_gpu();
  gpu->multiply_in(DType::bf16);
  const DType type = DType::bf16;
  for (const auto& [m, n] : {std::array<std::size_t, 2>{34, 24}, {7, 640}, {6, 13}, {3, 1032}}) {
    for (const bool is_of_weight : {false, true}) {
      check_epilogues(*gpu, {.m = m,
                             .n = n,
                             .k = 17,
                             .a_is_turned = is_of_weight,
                             .is_rounded = true,
                             .a = {nullptr, type},
                             .b = {nullptr, type},
                             .c = {nullptr, is_of_weight ? DType::f32 : type}});
    }
  }
}

TEST_CASE("a bias's gradient on a GPU has every row, in packs of columns and not") {
  const WithBlas with_blas;
  const auto gpu = make_gpu();
  gpu->multiply_in(DType::bf16);
  for (const DType type : {DType::bf16, DType::f32}) {
    for (const bool accumulate : {false, true}) {
      for (const std::size_t outputs : {8, 12, 13, 264}) {
        for (const std::size_t rows : {1, 131, 700}) { // Many are split over blocks.
          check_bias_gradient(*gpu, type, rows, outputs, accumulate);
        }
      }
    }
  }
}

/// `most_wrong`: of the sum of the magnitudes of what three products make.
void check_rounded_again(MatmulPrecision precision, double most_wrong) {
  const WithBlas with_blas;
  const auto gpu = make_gpu();
  gpu->multiply_in(DType::bf16);
  if (!gpu->set_matmul_precision(precision)) { // An older GPU.
    return;
  }
  constexpr std::size_t k_side = 32;
  constexpr std::size_t k_all = k_side * k_side;
  On<float> a(*gpu, numbers(k_all, 1));
  On<float> b(*gpu, numbers(k_all, 2));
  On<float> c(*gpu, std::vector<float>(k_all));
  On<float> d(*gpu, std::vector<float>(k_all));
  const auto product = [&](On<float>& left, On<float>& right, On<float>& to) {
    gpu->kernels().matmul(gpu->stream(), {.m = k_side,
                                          .n = k_side,
                                          .k = k_side,
                                          .is_rounded = true,
                                          .fp8 = Matmul::Fp8::forward,
                                          .a = left.data(),
                                          .b = right.data(),
                                          .c = to.data()});
  };
  const auto all = [&] { // Once as it is, once noted, once as it was noted.
    gpu->kernels().blend(gpu->stream(), k_all, 0.5F, b.data(), 0.5F, a.data()); // By a kernel,
    product(a, b, c);
    product(c, b, a); // by a product,
    product(a, b, d);
  };
  std::vector<float> before = numbers(k_all, 1);
  const std::vector<float> of_b = numbers(k_all, 2);
  const auto expected = [&](const std::vector<float>& left) {
    std::vector<float> to(k_all);
    for (std::size_t i = 0; i < k_all; ++i) {
      for (std::size_t step = 0; step < k_side; ++step) {
        to[i] += left[i / k_side * k_side + step] * of_b[step * k_side + i % k_side];
      }
    }
    return to;
  };
  for (int time = 0; time < 3; ++time) {
    gpu->stream().replay({1}, all);
    for (std::size_t i = 0; i < k_all; ++i) {
      before[i] = 0.5F * of_b[i] + 0.5F * before[i];
    }
    before = expected(expected(before));
    const std::vector<float> last = expected(before);
    const std::vector<float> found = d.read();
    double wrong = 0;
    double size = 0;
    for (std::size_t i = 0; i < k_all; ++i) {
      wrong += std::abs(double{found[i]} - double{last[i]});
      size += std::abs(double{last[i]});
    }
    CHECK(wrong < most_wrong * size);
    before = a.read();
    gpu->stream().copy(before.data(), a.data(), k_all * sizeof(float)); // and by a copy.
  }
}

TEST_CASE("what is rounded for a product is rounded again once it has changed") {
  check_rounded_again(MatmulPrecision::highest, 0.03);
  check_rounded_again(MatmulPrecision::fp8, 0.2);
}

TEST_CASE("a product is added to what lies elsewhere, with a bias of either type and without") {
  constexpr std::size_t m = 19;
  constexpr std::size_t n = 24;
  constexpr std::size_t k = 16;
  const auto check = [&](DType type, Matmul::Epilogue epilogue, DType bias_type) {
    const auto gpu = make_gpu();
    gpu->multiply_in(type);
    const Values a = rounded(numbers(m * k, 1));
    const Values b = rounded(numbers(k * n, 2));
    const Values plus = rounded(numbers(m * n, 3));
    const Values bias = rounded(numbers(n, 4));
    Activations on_a(*gpu, a);
    Activations on_b(*gpu, b);
    Activations on_plus(*gpu, plus);
    Activations on_c(*gpu, Values(m * n, NAN));
    On<float> floats(*gpu, bias);
    Activations halves(*gpu, bias);
    gpu->kernels().matmul(
        gpu->stream(),
        {.m = m,
         .n = n,
         .k = k,
         .is_rounded = true,
         .epilogue = epilogue,
         .a = on_a.pointer(),
         .b = on_b.pointer(),
         .c = on_c.pointer(),
         .with = bias_type == DType::f32 ? TypedPointer(floats.data()) : halves.pointer(),
         .plus = on_plus.pointer()});
    const Values found = on_c.read();
    for (std::size_t i = 0; i < m * n; ++i) {
      double exact = double{plus[i]} + (epilogue == Matmul::Epilogue::bias ? bias[i % n] : 0);
      for (std::size_t step = 0; step < k; ++step) {
        exact += double{a[i / n * k + step]} * double{b[step * n + i % n]};
      }
      CHECK(found[i] == doctest::Approx(exact).epsilon(1e-2).scale(3));
    }
    CHECK(on_plus.read() == plus);
  };
  const auto check_all = [&] {
    for (const auto epilogue : {Matmul::Epilogue::none, Matmul::Epilogue::bias}) {
      check(DType::f32, epilogue, DType::f32);
      check(DType::bf16, epilogue, DType::f32);
      check(DType::bf16, epilogue, DType::bf16);
    }
  };
  check_all();
  const WithBlas with_blas;
  check_all();
}

#ifndef DTRAIN_ON_GPU
TEST_CASE("a product by cuBLASLt is float64's too, and each is planned once") {
  const WithBlas with_blas;
  const auto made_gpu = make_gpu();
  CudaDevice& gpu = *made_gpu;
  check_all_matmuls(gpu);
  const int plans = cuda_on_cpu::blas_plans();
  CHECK(plans > 0);
  check_matmul(gpu, {.m = 64, .n = 128, .k = 784});
  CHECK(cuda_on_cpu::blas_plans() == plans);
}
#endif
