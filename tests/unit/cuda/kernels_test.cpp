// Each kernel of the GPU's, its source run on the CPU, against the CPU's own.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "tests/cuda_on_cpu/runtime.h"
#include "tests/unit/cuda/alike.h"
#include "trainer/optim/muon.h"

using namespace trainer;
using namespace trainer::test;

namespace {

Values squares_of(Values values) {
  for (float& value : values) {
    value *= value;
  }
  return values;
}

} // namespace

TEST_CASE("optimizers on a GPU write what they update in bf16 too, and it alone") {
  const UpdateRule rule{.epsilon = 1e-4F, .l2 = 0.1F, .decay = 0.5};
  const auto gpu = make_gpu();
  const Kernels& kernels = gpu->kernels();
  Stream& stream = gpu->stream();
  constexpr float k_beside = 7;
  for (const std::size_t begin : {0, 1, 4}) {
    for (const std::size_t n : {1, 31, 1000}) {
      for (const int number : {0, 1, 2, 3}) {
        On<StepState> state(*gpu, {{.learning_rate = 0.02,
                                    .step_size = 0.01F,
                                    .inverse_correction2 = 2,
                                    .factor = 0.5F}});
        On<float> g(*gpu, numbers(n, 1));
        On<float> m(*gpu, numbers(n, 2));
        On<float> v(*gpu, squares_of(numbers(n, 3)));
        On<float> u(*gpu, numbers(n, 5));
        On<float> p(*gpu, numbers(begin + n, 4));
        On<Bf16Value> rounded(*gpu, std::vector<Bf16Value>(begin + n + 1, k_beside));
        const Parameters to(p.data() + begin, rounded.data() + begin);
        number == 0 ? kernels.sgd(stream, n, rule, state.data(), g.data(), m.data(), to)
        : number == 1
            ? kernels.adam(stream, n, rule, state.data(), g.data(), m.data(), v.data(), to)
        : number == 2 ? kernels.lamb_take(stream, n, state.data(), u.data(), to)
                      : kernels.muon_take(stream, n, rule, state.data(), 0.5F, u.data(), to);
        const Values found = p.read();
        CHECK(found.back() != numbers(begin + n, 4).back());
        std::vector<std::uint16_t> bits;
        for (const Bf16Value& value : rounded.read()) {
          bits.push_back(value.bits);
        }
        std::vector<std::uint16_t> expected(begin, Bf16::narrow(k_beside));
        for (std::size_t i = begin; i < found.size(); ++i) {
          expected.push_back(Bf16::narrow(found[i]));
        }
        expected.push_back(Bf16::narrow(k_beside));
        CHECK(bits == expected);
      }
    }
  }
}

TEST_CASE("Muon on a GPU updates matrices as on a CPU, wide and tall") {
  using Sides = std::array<std::size_t, 2>;
  for (const Sides& sides : {Sides{1, 1}, {5, 7}, {66, 33}, {20, 100}}) {
    CAPTURE(sides[0]);
    TensorTable tensors;
    tensors.add("weight", {sides[0], sides[1]});
    const std::size_t n = tensors.arena_size();
    Values gradient = numbers(n, 1);
    std::fill(gradient.begin() + static_cast<std::ptrdiff_t>(sides[0] * sides[1]), gradient.end(),
              0.0F);
    check_alike({gradient, Values(n), numbers(n, 2), Values(n)}, 1e-4,
                [&](Device& device, const std::vector<float*>& at) {
                  On<StepState> state(device, {{.learning_rate = 0.1, .factor = 0.5F}});
                  const Muon muon(tensors, device);
                  const UpdateRule rule{.decay = 0.1};
                  for (int step = 0; step < 2; ++step) {
                    Stream& stream = device.stream();
                    const Kernels& kernels = device.kernels();
                    kernels.muon_direction(stream, n, rule, state.data(), at[0], at[1], at[3]);
                    const auto [u, count, ratio] = muon.orthogonalised(tensors[0], at[3]);
                    kernels.muon_take(stream, count, rule, state.data(), ratio, u, at[2]);
                  }
                  device.stream().record()->wait(); // Before its room goes.
                });
  }
}

TEST_CASE("a step's state on a GPU is the CPU's, through clipped, skipped and scaled steps") {
  const auto run = [](Device& device, const StepRule& rule) {
    On<StepState> state(device, {{.loss_scale = {.scale = 1024}}});
    On<SquareSum> squares(device, {{}});
    const Buffer pinned = device.allocate_pinned(sizeof(StepState), DType::u8);
    auto* const told = static_cast<StepState*>(pinned.memory());
    std::vector<StepState> all;
    std::int64_t step = 0;
    for (const double found : {4.0, 1e12, double{INFINITY}, 0.0, double{NAN}, 9.0}) {
      const StepInput input{
          .step = ++step, .samples = 12, .learning_rate = {0.1, 0.09, 0.08, 0.07}};
      device.kernels().begin(device.stream(), rule, input, state.data(), nullptr);
      all.push_back(state.read()[0]);
      const SquareSum sum{found, std::isfinite(found) ? double{INFINITY} : 7};
      device.stream().copy(&sum, squares.data(), sizeof sum);
      device.kernels().prepare(device.stream(), rule, squares.data(), state.data(), told);
      all.push_back(state.read()[0]);
      all.push_back(*told);
    }
    return all;
  };
  CpuDevice cpu(portable_kernels());
  const auto made_gpu = make_gpu();
  CudaDevice& gpu = *made_gpu;
  const LossScaleOptions dynamic{.fixed = 0, .window = 2, .hysteresis = 1, .least = 512};
  for (const StepRule& rule :
       {StepRule{.clip_norm = 1}, StepRule{.size = StepRule::Size::rate, .clip_norm = 1e6F},
        StepRule{.size = StepRule::Size::correction, .skips_overflows = 1, .loss_scale = dynamic},
        StepRule{.clip_norm = 1, .skips_overflows = 1, .loss_scale = dynamic}}) {
    const std::vector<StepState> expected = run(cpu, rule);
    const std::vector<StepState> found = run(gpu, rule);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      CAPTURE(i);
      const StepState& a = expected[i];
      const StepState& b = found[i];
      const auto near = [](float one, float other) {
        return std::isnan(one) ? std::isnan(other) : one == doctest::Approx(other).epsilon(1e-6);
      };
      CHECK(b.loss_scale == a.loss_scale);
      CHECK(b.step == a.step);
      CHECK(b.skipped == a.skipped);
      CHECK(b.not_finite == a.not_finite);
      CHECK(b.learning_rate == a.learning_rate);
      CHECK(is_skipped(b) == is_skipped(a));
      CHECK(b.is_at_least == a.is_at_least);
      CHECK(b.loss_factor == a.loss_factor);
      CHECK(near(b.step_size, a.step_size));
      CHECK(near(b.inverse_correction2, a.inverse_correction2));
      CHECK(near(b.factor, a.factor));
      CHECK((std::isinf(a.norm) ? std::isinf(b.norm) : near(b.norm, a.norm)));
    }
    CHECK(expected.back().skipped == 2);
  }
}

TEST_CASE("the gradients' norm on a GPU is the CPU's, and clips by the same factor") {
  for (const std::size_t n : {1, 255, 100'003}) {
    for (const float limit : {0.1F, 1e6F}) {
      check_alike(
          {numbers(n, 1), {0, 0}}, 1e-6, [&](Device& device, const std::vector<float*>& at) {
            On<SquareSum> squares(device, std::vector<SquareSum>(3));
            SquareSum* const parts = squares.data();
            const std::size_t half = n / 2;
            device.kernels().squares(device.stream(), half, at[0], 0, parts);
            device.kernels().squares(device.stream(), n - half, at[0] + half, half, parts + 1);
            device.kernels().sum(device.stream(), 2, 1, parts, parts + 2);
            On<StepState> state(device, {{}});
            device.kernels().prepare(device.stream(), {.clip_norm = limit}, parts + 2, state.data(),
                                     nullptr);
            device.stream().copy(&state.data()->norm, at[1], sizeof(float));
            device.stream().copy(&state.data()->factor, at[1] + 1, sizeof(float));
          });
    }
  }
  const auto made_gpu = make_gpu();
  CudaDevice& gpu = *made_gpu;
  Values poisoned = numbers(1000, 1);
  poisoned[777] = NAN;
  On<float> gradients(gpu, poisoned);
  On<StepState> state(gpu, {{}});
  On<SquareSum> squares(gpu, {{}});
  const StepRule step{.clip_norm = 1};
  gpu.kernels().begin(gpu.stream(), step, {.learning_rate = {0.1}}, state.data(), nullptr);
  gpu.kernels().squares(gpu.stream(), 1000, gradients.data(), 5000, squares.data());
  gpu.kernels().prepare(gpu.stream(), step, squares.data(), state.data(), nullptr);
  CHECK(std::isnan(state.read()[0].norm));
  CHECK(state.read()[0].not_finite == 5777);
  // So no optimizer changes anything by it.
  const Values before = numbers(1000, 2);
  for (const int rule_number : {0, 1, 2}) {
    On<float> parameters(gpu, before);
    On<float> moments(gpu, Values(3000));
    float* const m = moments.data();
    const float* const g = gradients.data();
    const Kernels& kernels = gpu.kernels();
    rule_number == 0 ? kernels.sgd(gpu.stream(), 1000, {}, state.data(), g, m, parameters.data())
    : rule_number == 1
        ? kernels.adam(gpu.stream(), 1000, {}, state.data(), g, m, m + 1000, parameters.data())
        : kernels.lamb_take(gpu.stream(), 1000, state.data(), g, parameters.data());
    CHECK(parameters.read() == before);
  }
}

TEST_CASE("a norm of more values than a GPU's grid has threads is the CPU's, the same each time") {
  const Values values = numbers(1'100'003, 1);
  const auto sum_of = [&](Device& device) {
    On<float> there(device, values);
    On<SquareSum> to(device, {{}});
    const auto squares = [&](std::size_t begin) {
      device.kernels().squares(device.stream(), values.size() - begin, there.data() + begin, begin,
                               to.data());
      return to.read()[0].sum;
    };
    const double first = squares(1);
    CHECK(squares(1) == first);
    return std::pair(first, squares(0));
  };
  CpuDevice cpu(portable_kernels());
  const auto made_gpu = make_gpu();
  const auto expected = sum_of(cpu);
  const auto found = sum_of(*made_gpu);
  CHECK(found.first == doctest::Approx(expected.first).epsilon(1e-9));
  CHECK(found.second == doctest::Approx(expected.second).epsilon(1e-9));
}

/// With labels kept as such a type, up to `largest`.
template <typename Label>
void check_gathering(DType type, std::size_t largest) {
  CAPTURE(largest);
  constexpr std::size_t k_count = 301;
  constexpr std::size_t k_rows = 40;
  const Permutation order(k_count, 7, 3);
  for (const std::size_t features : {1, 7, 300}) {
    const auto run = [&](Device& device, bool is_beside) {
      std::vector<std::uint8_t> bytes(k_count * features);
      std::vector<Label> names(k_count);
      for (std::size_t i = 0; i < bytes.size(); ++i) {
        bytes[i] = static_cast<std::uint8_t>(i * 31 % 253);
        names[i / features] = static_cast<Label>(i / features * largest / k_count);
      }
      On<std::uint8_t> images(device, bytes);
      On<Label> labels(device, names);
      On<float> to(device, Values(k_rows * features, NAN));
      On<std::int32_t> to_labels(device, std::vector<std::int32_t>(k_rows));
      const Gathering some{order,    k_count - k_rows, k_rows,
                           features, images.data(),    labels.data(),
                           type,     to.data(),        to_labels.data()};
      On<StepState> state(device, {{}});
      is_beside ? device.kernels().begin(device.stream(), {}, {.step = 7}, state.data(), &some)
                : device.kernels().gather(device.stream(), some);
      CHECK(state.read()[0].step == (is_beside ? 7 : 0));
      return std::pair(to.read(), to_labels.read());
    };
    CpuDevice cpu(portable_kernels());
    const auto made_gpu = make_gpu();
    const auto expected = run(cpu, false);
    CHECK(run(*made_gpu, false) == expected);
    CHECK(run(*made_gpu, true) == expected);
    CHECK(run(cpu, true) == expected);
    CHECK(expected.second[3] ==
          static_cast<std::int32_t>(order(k_count - k_rows + 3) * largest / k_count));
  }
}

TEST_CASE("a GPU gathers the CPU's samples, in the order of a permutation, labels of any type") {
  check_gathering<std::uint8_t>(DType::u8, 0xff);
  check_gathering<std::int16_t>(DType::i16, 0x7fff);
  check_gathering<std::int32_t>(DType::i32, 0x7fffffff);
}

TEST_CASE("16-bit floats on a GPU are the CPU's, bit for bit") {
  constexpr std::size_t k_count = 4000;
  Values values = numbers(k_count, 9);
  for (std::size_t i = 0; i < k_count; ++i) {
    values[i] = std::ldexp(values[i], static_cast<int>(i % 60) - 40);
  }
  values[0] = INFINITY;
  values[1] = -NAN;
  values[2] = 65519;
  CpuDevice cpu(portable_kernels());
  const auto made_gpu = make_gpu();
  CudaDevice& gpu = *made_gpu;
  for (const DType type : {DType::bf16, DType::f16}) {
    const auto run = [&](Device& device) {
      On<float> from(device, values);
      On<std::uint16_t> halves(device, std::vector<std::uint16_t>(k_count));
      On<float> back(device, Values(k_count));
      device.kernels().narrow(device.stream(), k_count, type, from.data(), halves.data());
      device.kernels().widen(device.stream(), k_count, type, halves.data(), back.data());
      const Values read = back.read();
      std::vector<std::uint32_t> bits(k_count);
      std::memcpy(bits.data(), read.data(), k_count * sizeof(float));
      return std::pair(halves.read(), bits);
    };
    CHECK(run(gpu) == run(cpu));
  }
}
