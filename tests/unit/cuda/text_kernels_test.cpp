// Each kernel of models of text, its source run on the CPU, against the CPU's own.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "tests/cuda_on_cpu/runtime.h"
#include "tests/unit/cuda/alike.h"

using namespace trainer;
using namespace trainer::test;

namespace {

using Ids = std::vector<std::int32_t>;
using Floats = std::vector<float*>;

constexpr double k_tolerance = 1e-5;

/// Whatever bits: of a GPU's dropout that the CPU's is given too.
std::vector<std::uint16_t> bits(std::size_t words) {
  std::vector<std::uint16_t> values(words);
  for (std::size_t i = 0; i < words; ++i) {
    values[i] = static_cast<std::uint16_t>(random_at(1, RandomStream::weights, 99, i)[0]);
  }
  return values;
}

/// Below `end`, with some that come again and again.
Ids ids_below(std::size_t count, std::size_t end) {
  Ids ids(count);
  for (std::size_t i = 0; i < count; ++i) {
    ids[i] = static_cast<std::int32_t>(
        i % 3 == 0 ? 1 % end : random_at(1, RandomStream::weights, 98, i)[0] % end);
  }
  return ids;
}

using Typed = std::vector<TypedPointer>;

/// What `work` leaves of activations, in bf16 on a GPU, and of `floats`: the CPU's of the same,
/// rounded, but for `tolerance` of each value, and of its size.
template <typename Work>
void check_halves(const std::vector<Values>& activations, const std::vector<Values>& floats,
                  double tolerance, const Work& work) {
  const auto run = [&](Device& device) {
    std::vector<Activations> there;
    Typed typed;
    for (const Values& values : activations) {
      typed.push_back(there.emplace_back(device, rounded(values)).pointer());
    }
    std::vector<Values> left =
        on_device(device, floats, [&](Device& of, const Floats& at) { work(of, typed, at); });
    for (Activations& one : there) {
      left.push_back(one.read());
    }
    return left;
  };
  CpuDevice cpu(portable_kernels());
  const auto gpu = make_gpu();
  gpu->multiply_in(DType::bf16);
  REQUIRE(gpu->activation_type() == DType::bf16);
  check_near(run(*gpu), run(cpu), tolerance);
}

/// Forward and backward, with dropout and without, of float32 and of bf16.
void check_attention(const AttentionShape& s, DType type, double tolerance) {
  const std::size_t n = s.rows * s.length * s.width();
  Ids lengths(s.rows, static_cast<std::int32_t>(s.length));
  lengths.back() = static_cast<std::int32_t>(s.length / 2); // Of one token: none.
  for (const bool drops : {false, true}) {
    CAPTURE(s.length);
    CAPTURE(drops);
    // Queries, keys, values, context, its gradient, and the gradients of the three.
    const std::vector<Values> arrays = {numbers(n, 1),  numbers(n, 2), numbers(n, 3),
                                        Values(n, NAN), numbers(n, 4), Values(n, NAN),
                                        Values(n, NAN), Values(n, NAN)};
    const auto work = [&](Device& device, const auto& at) {
      const TextKernels& text = *device.kernels().text;
      On<std::int32_t> on_lengths(device, lengths);
      On<std::uint16_t> keep(device, bits(s.lines() * s.words_a_line()));
      On<float> p(device, Values(text.attention_room(device.stream(), s), NAN));
      On<float> room(device, Values(text.attention_room(device.stream(), s), NAN));
      const Dropped dropped = drops ? Dropped{keep.data(), 1.25F} : Dropped{};
      text.attention(device.stream(), s, on_lengths.data(), dropped, {at[0], at[1], at[2]},
                     p.data(), at[3]);
      text.attention_backward(device.stream(), s, on_lengths.data(), dropped, {at[0], at[1], at[2]},
                              p.data(), at[3], at[4], room.data(), {at[5], at[6], at[7]});
    };
    if (type == DType::bf16) {
      check_halves(arrays, {}, tolerance,
                   [&](Device& device, const Typed& at, const Floats&) { work(device, at); });
    } else {
      check_alike(arrays, tolerance, work);
    }
  }
}

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

TEST_CASE("a GPU drops what the CPU drops") {
  for (const DropShape& s :
       {DropShape{1, 16}, DropShape{2, 128}, DropShape{1031, 16}, DropShape{5, 28},
        DropShape{77, 39}}) { // And where rows end in a word.
    const std::size_t n = s.values();
    CAPTURE(s.width);
    for (const bool is_on : {false, true}) {
      const auto dropped = [&](On<std::uint16_t>& keep) {
        return is_on ? Dropped{keep.data(), 1.25F} : Dropped{};
      };
      check_alike({numbers(n, 1), Values(n, NAN)}, 1e-6, [&](Device& device, const Floats& at) {
        On<std::uint16_t> keep(device, bits(s.rows * keep_words(s.width)));
        device.kernels().text->drop(device.stream(), s, dropped(keep), at[0], at[1]);
        device.kernels().text->drop(device.stream(), s, dropped(keep), at[0], at[0]);
      });
      check_alike({numbers(n, 1), numbers(n, 2)}, 1e-6, [&](Device& device, const Floats& at) {
        On<std::uint16_t> keep(device, bits(s.rows * keep_words(s.width)));
        device.kernels().text->drop_and_add(device.stream(), s, dropped(keep), at[0], at[1]);
      });
    }
  }
}

TEST_CASE("text is embedded on a GPU as on the CPU, and its gradients added to those before") {
  // One row, more tokens than a block has threads, more columns, and rows that begin at no fours;
  // words that come so often that several blocks add them up.
  for (const TextShape& s :
       {TextShape{1, 1, 16}, TextShape{3, 7, 48}, TextShape{2, 150, 16}, TextShape{2, 5, 272},
        TextShape{2, 3, 1104}, TextShape{3, 5, 272}, TextShape{2, 500, 16}}) {
    const std::size_t begin = s.rows == 3 ? 1 : 0;
    constexpr std::size_t k_words = 11;
    const Ids ids = ids_below(s.tokens(), k_words);
    const bool has_types = s.rows > 1;
    CAPTURE(s.length);
    CAPTURE(s.width);
    check_alike({numbers(begin + k_words * s.width, 1), numbers(s.width, 2),
                 numbers(s.length * s.width, 3), Values(s.tokens() * s.width, NAN)},
                1e-6, [&](Device& device, const Floats& at) {
                  On<std::int32_t> on_ids(device, ids);
                  device.kernels().text->embed(device.stream(), s, on_ids.data(), at[0] + begin,
                                               has_types ? at[1] : nullptr, at[2], at[3]);
                });
    check_alike({numbers(begin + s.tokens() * s.width, 4), Values(k_words * s.width, 0.5F),
                 Values(s.width, 0.25F), Values(s.length * s.width, -1.0F)},
                k_tolerance, [&](Device& device, const Floats& at) {
                  On<std::int32_t> on_ids(device, ids);
                  device.kernels().text->embed_backward(device.stream(), s, on_ids.data(),
                                                        at[0] + begin, at[1],
                                                        has_types ? at[2] : nullptr, at[3]);
                });
  }
}

TEST_CASE("rows are normalised on a GPU as on the CPU, and so are gradients") {
  // More rows than blocks take at once; rows that a warp keeps, a block does, and nobody; and such
  // as do not begin where 16 bytes do.
  for (const NormShape& s :
       {NormShape{1, 16, 1e-12F}, NormShape{9, 48, 1e-5F}, NormShape{70, 272, 1e-12F},
        NormShape{2200, 16, 1e-12F}, NormShape{20, 768, 1e-5F}, NormShape{9, 1008, 1e-5F},
        NormShape{20, 1040, 1e-5F}, NormShape{3, 2304, 1e-5F}, NormShape{3, 4112, 1e-5F},
        NormShape{300, 48, 1e-5F}, NormShape{9, 39, 1e-5F}, NormShape{20, 312, 1e-12F}}) {
    const std::size_t begin = s.rows == 300 ? 1 : 0;
    CAPTURE(s.rows);
    CAPTURE(s.width);
    const std::size_t n = s.rows * s.width;
    for (const bool accumulate : {false, true}) {
      const float before = accumulate ? 0.25F : NAN;
      check_alike({numbers(begin + n, 1), numbers(s.width, 2), numbers(s.width, 3), Values(n, NAN),
                   Values(2 * s.rows, NAN), numbers(n, 4), Values(s.width, before),
                   Values(s.width, before), numbers(n, 5)},
                  4e-5, [&](Device& device, Floats at) {
                    at[0] += begin;
                    const TextKernels& text = *device.kernels().text;
                    text.norm(device.stream(), s, at[0], at[1], at[2], at[3], at[4]);
                    text.norm_backward(device.stream(), s, at[0], at[4], at[1], accumulate, at[5],
                                       accumulate ? at[8] : nullptr, at[6], at[7]);
                  });
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

TEST_CASE("gelu's gradient on a GPU is the CPU's") {
  Values x = numbers(1037, 1);
  for (float& value : x) {
    value *= 6;
  }
  check_alike({x, numbers(x.size(), 2)}, 2e-6, [&](Device& device, const Floats& at) {
    device.kernels().text->gelu_backward(device.stream(), x.size(), at[0], at[1]);
  });
}

TEST_CASE("attention on a GPU is the CPU's, and its gradients, of heads that fill no tile") {
  for (const AttentionShape& s :
       {AttentionShape{1, 1, 1, 16}, AttentionShape{3, 20, 2, 16}, AttentionShape{2, 70, 1, 48},
        AttentionShape{1, 33, 3, 80}, AttentionShape{3, 20, 2, 16, true},
        AttentionShape{2, 70, 1, 48, true}, AttentionShape{2, 20, 3, 26},
        AttentionShape{1, 33, 3, 13, true}, AttentionShape{2, 150, 1, 16},
        AttentionShape{2, 150, 1, 16, true}}) {
    check_attention(s, DType::f32, k_tolerance);
  }
}

TEST_CASE("attention by tensor cores is the CPU's, but for what rounding to bf16 leaves out") {
  for (const AttentionShape& s :
       {AttentionShape{1, 1, 1, 32}, AttentionShape{3, 20, 2, 32}, AttentionShape{2, 70, 1, 64},
        AttentionShape{1, 150, 2, 64, true}, AttentionShape{3, 20, 2, 32, true},
        AttentionShape{2, 70, 1, 128}, AttentionShape{1, 100, 2, 128, true}}) {
    check_attention(s, DType::bf16, 2e-2);
  }
}

TEST_CASE("attention of bf16 is the CPU's without tensor cores too") {
  for (const AttentionShape& s : {AttentionShape{3, 20, 2, 16}, AttentionShape{2, 70, 1, 48, true},
                                  AttentionShape{1, 33, 3, 80}, AttentionShape{2, 20, 3, 13}}) {
    check_attention(s, DType::bf16, 1e-2);
  }
}

TEST_CASE("what a GPU makes of activations of bf16 is what the CPU makes of float32, rounded") {
  constexpr double k_rounding = 4e-3; // Of what is stored.
  for (const DropShape& s : {DropShape{1, 16}, DropShape{2, 128}, DropShape{1031, 16},
                             DropShape{5, 28}, DropShape{77, 39}}) {
    CAPTURE(s.width);
    const std::size_t n = s.values();
    check_halves({numbers(n, 1), Values(n, NAN), numbers(n, 2)}, {}, 2 * k_rounding,
                 [&](Device& device, const Typed& x, const Floats&) {
                   const TextKernels& text = *device.kernels().text;
                   On<std::uint16_t> keep(device, bits(s.rows * keep_words(s.width)));
                   text.drop(device.stream(), s, {keep.data(), 1.25F}, x[0], x[1]);
                   text.drop_and_add(device.stream(), s, {keep.data(), 1.25F}, x[0], x[2]);
                   text.gelu_backward(device.stream(), n, x[0], x[2]);
                 });
  }
  for (const TextShape& s : {TextShape{3, 7, 48}, TextShape{2, 150, 16}, TextShape{3, 5, 273}}) {
    CAPTURE(s.width);
    constexpr std::size_t k_words = 11;
    const Ids ids = ids_below(s.tokens(), k_words);
    check_halves({Values(s.tokens() * s.width, NAN), numbers(s.tokens() * s.width, 4)},
                 {numbers(k_words * s.width, 1), numbers(s.width, 2),
                  numbers(s.length * s.width, 3), Values(k_words * s.width, 0.5F),
                  Values(s.width, 0.25F), Values(s.length * s.width, -1.0F)},
                 k_rounding, [&](Device& device, const Typed& x, const Floats& at) {
                   const TextKernels& text = *device.kernels().text;
                   On<std::int32_t> on_ids(device, ids);
                   text.embed(device.stream(), s, on_ids.data(), at[0], at[1], at[2], x[0]);
                   text.embed_backward(device.stream(), s, on_ids.data(), x[1], at[3], at[4],
                                       at[5]);
                 });
  }
  for (const NormShape& s :
       {NormShape{9, 48, 1e-5F}, NormShape{9, 39, 1e-5F}, NormShape{20, 1040, 1e-5F},
        NormShape{2200, 16, 1e-5F}, NormShape{20, 768, 1e-5F}, NormShape{3, 4112, 1e-5F}}) {
    CAPTURE(s.width);
    const std::size_t n = s.rows * s.width;
    for (const bool adds : {false, true}) {
      check_halves({numbers(n, 1), Values(n, NAN), numbers(n, 4), numbers(n, 5)},
                   {numbers(s.width, 2), numbers(s.width, 3), Values(2 * s.rows, NAN),
                    Values(s.width, 0.25F), Values(s.width, 0.25F)},
                   k_rounding, [&](Device& device, const Typed& x, const Floats& at) {
                     const TextKernels& text = *device.kernels().text;
                     text.norm(device.stream(), s, x[0], at[0], at[1], x[1], at[2]);
                     text.norm_backward(device.stream(), s, x[0], at[2], at[0], true, x[2],
                                        adds ? x[3] : TypedPointer(), at[3], at[4]);
                   });
    }
  }
  const Ids masked = {0, 4, -1, 2, 3, 4, -1, -1, -1, 1, -1, -1};
  for (const std::size_t width : {48, 301, 8201, 8208}) {
    CAPTURE(width);
    const MaskedShape s{4, 5, 3, width};
    const std::size_t n = s.rows * s.length * width;
    check_halves({numbers(n, 1), Values(s.slots() * width, NAN), Values(n, 7)}, {}, 0,
                 [&](Device& device, const Typed& x, const Floats&) {
                   On<std::int32_t> on_masked(device, masked);
                   const TextKernels& text = *device.kernels().text;
                   text.gather_masked(device.stream(), s, on_masked.data(), x[0], x[1]);
                   text.scatter_masked(device.stream(), s, on_masked.data(), x[1], x[2]);
                 });
    std::vector<Score> scores;
    check_halves({numbers(s.slots() * width, 5)}, {}, k_rounding,
                 [&](Device& device, const Typed& x, const Floats&) {
                   On<std::int32_t> on_masked(device, masked);
                   On<std::int32_t> targets(device, ids_below(s.slots(), width));
                   On<Score> score(device, {Score{}});
                   On<float> half(device, {0.5F});
                   device.kernels().text->masked_cross_entropy(device.stream(), s, on_masked.data(),
                                                               targets.data(), half.data(), x[0],
                                                               score.data());
                   scores.push_back(score.read()[0]);
                 });
    REQUIRE(scores.size() == 2);
    CHECK(scores[0].loss == doctest::Approx(scores[1].loss).epsilon(1e-5));
    CHECK(scores[0].count == 6);
  }
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

TEST_CASE("what is masked is gathered on a GPU, put back, and scored as on the CPU") {
  const Ids masked = {0, 4, -1, 2, 3, 4, -1, -1, -1, 1, -1, -1};
  constexpr std::size_t k_rows = 4;
  constexpr std::size_t k_most = 3;
  constexpr std::size_t k_length = 5;
  // The last of so many logits that a block keeps them, alone, and that it cannot.
  for (const std::size_t width : {16, 48, 301, 5000, 8201, 8204, 30'000, 58'200}) {
    const MaskedShape s{k_rows, k_length, k_most, width};
    CAPTURE(width);
    check_alike({numbers(k_rows * k_length * width, 1), Values(s.slots() * width, NAN),
                 Values(k_rows * k_length * width, 7)},
                1e-6, [&](Device& device, const Floats& at) {
                  On<std::int32_t> on_masked(device, masked);
                  const TextKernels& text = *device.kernels().text;
                  text.gather_masked(device.stream(), s, on_masked.data(), at[0], at[1]);
                  text.scatter_masked(device.stream(), s, on_masked.data(), at[1], at[2]);
                });
    Values logits = numbers(s.slots() * width, 5);
    const Ids targets = ids_below(s.slots(), width);
    logits[static_cast<std::size_t>(targets[0])] = 3;             // Right,
    logits[width + static_cast<std::size_t>(targets[1])] = 3;     // and so where another
    logits[width + static_cast<std::size_t>(targets[1]) % 7] = 3; // is as large;
    logits[3 * width + 5] = 1000;                                 // no exponential overflows,
    logits[4 * width + 5] = -INFINITY;                            // and none is no number.
    const auto run = [&](Device& device) {
      On<float> z(device, logits);
      On<std::int32_t> on_masked(device, masked);
      On<std::int32_t> on_targets(device, targets);
      On<Score> score(device, {Score{1, 2, 3}});
      On<float> half(device, {0.5F});
      device.kernels().text->masked_cross_entropy(device.stream(), s, on_masked.data(),
                                                  on_targets.data(), half.data(), z.data(),
                                                  score.data());
      return std::pair(z.read(), score.read()[0]);
    };
    CpuDevice cpu(portable_kernels());
    const auto made_gpu = make_gpu();
    CudaDevice& gpu = *made_gpu;
    const auto [expected, expected_score] = run(cpu);
    const auto [found, score] = run(gpu);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      CHECK(found[i] == doctest::Approx(expected[i]).epsilon(1e-5).scale(1e-3));
    }
    CHECK(score.loss == doctest::Approx(expected_score.loss).epsilon(1e-6));
    CHECK(score.correct == expected_score.correct);
    CHECK(score.correct >= 4);
    CHECK(score.count == 3 + 6);
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
