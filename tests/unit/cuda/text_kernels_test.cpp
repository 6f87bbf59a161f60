// What the table of operations leaves out of text models' kernels: whose bits have to be the same,
// and odd logits.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>

#include "tests/cuda_on_cpu/runtime.h"
#include "tests/unit/cuda/alike.h"
#include "tests/unit/trainer/device/operations/oracles.h"

using namespace trainer;
using namespace trainer::test;

namespace {

using Floats = std::vector<float*>;

} // namespace

TEST_CASE("a GPU draws the CPU's dropout, bit for bit, wherever it begins") {
  for (const std::size_t words : {1, 2, 255, 1031}) {
    for (const std::uint64_t first : {std::uint64_t{0}, (std::uint64_t{1} << 33) - 5}) {
      const auto draw = [&](Device& device) {
        On<std::uint16_t> to(device, std::vector<std::uint16_t>(words));
        device.kernels().text->keep_bits(device.stream(), {0x123456789ABCDEFULL, 7, first, 6554},
                                         words, to.data());
        return to.read();
      };
      CpuDevice cpu(portable_kernels());
      const auto gpu = make_gpu();
      CHECK(draw(*gpu) == draw(cpu));
    }
  }
}

TEST_CASE("gradients of a norm on a GPU are the same bits each time") {
  const NormShape s{2000, 768, 1e-5F};
  const std::size_t n = s.rows * s.width;
  const auto made_gpu = make_gpu();
  CudaDevice& gpu = *made_gpu;
  const std::vector<Values> arrays = {numbers(n, 1), numbers(2 * s.rows, 2), numbers(s.width, 3),
                                      numbers(n, 4), Values(s.width),        Values(s.width)};
  const auto run = [&] {
    return on_device(gpu, arrays, [&](Device& device, const Floats& at) {
      device.kernels().text->norm_backward(device.stream(), s, at[0], at[1], at[2], false, at[3],
                                           {}, at[4], at[5]);
    });
  };
  CHECK(run() == run());
}

TEST_CASE("logits of bf16 whose rows are longer than the vocabulary are scored, and no others") {
  constexpr std::size_t k_words = 13;
  constexpr std::size_t k_row = 16;
  const auto gpu = make_gpu();
  gpu->multiply_in(DType::bf16);
  CpuDevice cpu(portable_kernels());
  const MaskedShape on_end{2, 3, 2, k_words};
  MaskedShape apart = on_end;
  apart.row = k_row;
  Values logits = rounded(numbers(on_end.slots() * k_row, 5));
  Values packed;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (i % k_row < k_words) {
      packed.push_back(logits[i]);
    } else {
      logits[i] = 100;
    }
  }
  const auto run = [&](Device& device, const MaskedShape& s, const Values& values) {
    Activations z(device, values);
    On<std::int32_t> masked(device, {0, 2, 1, -1});
    On<std::int32_t> targets(device, {3, 0, 12, 0});
    On<Score> score(device, {Score{}});
    On<float> one(device, {1.0F});
    device.kernels().text->masked_cross_entropy(device.stream(), s, masked.data(), targets.data(),
                                                one.data(), z.pointer(), score.data());
    return std::pair(z.read(), score.read()[0].loss);
  };
  const auto [found, loss] = run(*gpu, apart, logits);
  const auto [expected, expected_loss] = run(cpu, on_end, packed);
  CHECK(loss == doctest::Approx(expected_loss).epsilon(1e-5));
  for (std::size_t i = 0; i < found.size(); ++i) {
    const std::size_t column = i % k_row;
    CHECK(found[i] == (column < k_words
                           ? doctest::Approx(expected[i / k_row * k_words + column]).epsilon(4e-3)
                           : doctest::Approx(100)));
  }
}

TEST_CASE("more masked tokens than blocks are all scored, and a logit that is no number shows") {
  const MaskedShape s{300, 4, 2, 16};
  Ids masked(s.slots());
  for (std::size_t i = 0; i < masked.size(); ++i) {
    masked[i] = static_cast<std::int32_t>(i % 2);
  }
  const auto run = [&](Device& device, const Values& logits) {
    On<float> z(device, logits);
    On<std::int32_t> on_masked(device, masked);
    On<std::int32_t> targets(device, ids_below(s.slots(), s.width));
    On<Score> score(device, {Score{}});
    device.kernels().text->masked_cross_entropy(device.stream(), s, on_masked.data(),
                                                targets.data(), nullptr, z.data(), score.data());
    return score.read()[0];
  };
  CpuDevice cpu(portable_kernels());
  const auto made_gpu = make_gpu();
  CudaDevice& gpu = *made_gpu;
  Values logits = numbers(s.slots() * s.width, 5);
  const Score expected = run(cpu, logits);
  const Score found = run(gpu, logits);
  CHECK(found.count == 600);
  CHECK(found.correct == expected.correct);
  CHECK(found.loss == doctest::Approx(expected.loss).epsilon(1e-6));
  logits[777] = NAN;
  CHECK(std::isnan(run(gpu, logits).loss));
}
