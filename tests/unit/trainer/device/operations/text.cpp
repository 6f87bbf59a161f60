// What text models compute beside products and attention.
#include <algorithm>

#include <fmt/format.h>

#include "tests/unit/trainer/device/gelu.h"
#include "tests/unit/trainer/device/operations/oracles.h"

namespace trainer::test {
namespace {

using Pointers = std::vector<TypedPointer>;

/// Whatever bits.
std::vector<std::uint16_t> bits(std::size_t words) {
  std::vector<std::uint16_t> values(words);
  for (std::size_t i = 0; i < words; ++i) {
    values[i] = static_cast<std::uint16_t>(random_at(1, RandomStream::weights, 99, i)[0]);
  }
  return values;
}

// Dropout.

enum class Drop : int { to_another, in_place, and_add };

Operation drop(const DropShape& s, Drop how, bool is_on) {
  constexpr float k_scale = 1.25F;
  const auto keep = bits(s.rows * keep_words(s.width));
  const auto dropped = [=](const Doubles& x) {
    Doubles to;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const bool kept = is_kept(keep.data() + i / s.width * keep_words(s.width), i % s.width);
      to.push_back(!is_on ? x[i] : kept ? double{k_scale} * x[i] : 0);
    }
    return to;
  };
  const char* const name = how == Drop::to_another ? "drop"
                           : how == Drop::in_place ? "drop in place"
                                                   : "drop_and_add";
  return {.name = fmt::format("{} of {} × {}{}", name, s.rows, s.width, is_on ? "" : ", off"),
          .arrays = {activations(numbers(s.values(), 1)),
                     how == Drop::to_another ? activations_to_write(s.values())
                                             : activations(numbers(s.values(), 2))},
          .run =
              [=](Device& device, const Pointers& at) {
                const TextKernels& text = *device.kernels().text;
                On<std::uint16_t> on_device(device, keep);
                const Dropped by = is_on ? Dropped{on_device.data(), k_scale} : Dropped{};
                how == Drop::and_add ? text.drop_and_add(device.stream(), s, by, at[0], at[1])
                                     : text.drop(device.stream(), s, by,
                                                 how == Drop::in_place ? at[1] : at[0], at[1]);
                return finished(device);
              },
          .expected =
              [=](std::vector<Doubles>& at) {
                at[1] = dropped(how == Drop::to_another ? at[0] : at[1]);
                for (std::size_t i = 0; how == Drop::and_add && i < at[0].size(); ++i) {
                  at[1][i] += at[0][i];
                }
                return Doubles{};
              },
          .tolerance = 1e-6};
}

// Embeddings.

constexpr std::size_t k_words = 11;

std::string text_of(const char* name, const TextShape& s, bool has_types) {
  return fmt::format("{} of {} × {} tokens, {} wide{}", name, s.rows, s.length, s.width,
                     has_types ? ", with types" : "");
}

Operation embed(const TextShape& s, bool has_types, std::size_t begin) {
  const Ids ids = ids_below(s.tokens(), k_words);
  return {.name = text_of("embed", s, has_types),
          .arrays = {{.before = numbers(k_words * s.width, 1), .begin = begin},
                     {.before = numbers(s.width, 2)},
                     {.before = numbers(s.length * s.width, 3)},
                     activations_to_write(s.tokens() * s.width)},
          .run =
              [=](Device& device, const Pointers& at) {
                On<std::int32_t> on_device(device, ids);
                device.kernels().text->embed(
                    device.stream(), s, on_device.data(), at[0].as<float>(),
                    has_types ? at[1].as<float>() : nullptr, at[2].as<float>(), at[3]);
                return finished(device);
              },
          .expected =
              [=](std::vector<Doubles>& at) {
                for (std::size_t i = 0; i < at[3].size(); ++i) {
                  const std::size_t token = i / s.width;
                  const std::size_t column = i % s.width;
                  at[3][i] = at[0][static_cast<std::size_t>(ids[token]) * s.width + column] +
                             (has_types ? at[1][column] : 0) +
                             at[2][token % s.length * s.width + column];
                }
                return Doubles{};
              },
          .tolerance = 1e-6};
}

Operation embed_backward(const TextShape& s, bool has_types, std::size_t begin) {
  const Ids ids = ids_below(s.tokens(), k_words);
  return {.name = text_of("embed_backward", s, has_types),
          .arrays = {activations(numbers(s.tokens() * s.width, 4), begin),
                     {.before = Values(k_words * s.width, 0.5F)},
                     {.before = Values(s.width, 0.25F)},
                     {.before = Values(s.length * s.width, -1.0F)}},
          .run =
              [=](Device& device, const Pointers& at) {
                On<std::int32_t> on_device(device, ids);
                device.kernels().text->embed_backward(
                    device.stream(), s, on_device.data(), at[0], at[1].as<float>(),
                    has_types ? at[2].as<float>() : nullptr, at[3].as<float>());
                return finished(device);
              },
          .expected =
              [=](std::vector<Doubles>& at) {
                for (std::size_t i = 0; i < at[0].size(); ++i) {
                  const std::size_t token = i / s.width;
                  const std::size_t column = i % s.width;
                  at[1][static_cast<std::size_t>(ids[token]) * s.width + column] += at[0][i];
                  at[2][column] += has_types ? at[0][i] : 0;
                  at[3][token % s.length * s.width + column] += at[0][i];
                }
                return Doubles{};
              },
          .tolerance = 2e-5};
}

// Norms.

Operation norm_of(const NormShape& s, std::size_t begin) {
  const std::size_t n = s.rows * s.width;
  return {.name = fmt::format("norm of {} × {}", s.rows, s.width),
          .arrays = {activations(numbers(n, 1), begin),
                     {.before = numbers(s.width, 2)},
                     {.before = numbers(s.width, 3)},
                     activations_to_write(n),
                     to_write(2 * s.rows)},
          .run =
              [=](Device& device, const Pointers& at) {
                device.kernels().text->norm(device.stream(), s, at[0], at[1].as<float>(),
                                            at[2].as<float>(), at[3], at[4].as<float>());
                return finished(device);
              },
          .expected =
              [=](std::vector<Doubles>& at) {
                const Normed found = norm(s, at[0], at[1], at[2]);
                at[3] = found.y;
                at[4] = found.moments;
                return Doubles{};
              },
          .tolerance = 4e-5};
}

Operation add_and_norm(const NormShape& s, std::size_t begin, bool drops) {
  constexpr float k_scale = 1.25F;
  const std::size_t n = s.rows * s.width;
  const auto keep = bits(drops ? s.rows * keep_words(s.width) : 0);
  return {.name =
              fmt::format("add_and_norm of {} × {}{}", s.rows, s.width, drops ? ", dropped" : ""),
          .arrays = {activations(numbers(n, 5)),
                     activations(numbers(n, 1), begin),
                     {.before = numbers(s.width, 2)},
                     {.before = numbers(s.width, 3)},
                     activations_to_write(n)},
          .run =
              [=](Device& device, const Pointers& at) {
                On<std::uint16_t> on_device(device, keep);
                On<float> moments(device, Values(2 * s.rows, NAN));
                const Dropped by = drops ? Dropped{on_device.data(), k_scale} : Dropped{};
                device.kernels().text->add_and_norm(device.stream(), s, by, at[0], at[1],
                                                    at[2].as<float>(), at[3].as<float>(), at[4],
                                                    moments.data());
                return finished(device);
              },
          .expected =
              [=](std::vector<Doubles>& at) {
                for (std::size_t i = 0; i < n; ++i) {
                  const std::size_t word = i / s.width * keep_words(s.width);
                  const double by = !drops                                     ? 1
                                    : is_kept(keep.data() + word, i % s.width) ? double{k_scale}
                                                                               : 0;
                  at[1][i] = by * at[1][i] + at[0][i];
                }
                at[4] = norm(s, at[1], at[2], at[3]).y;
                return Doubles{};
              },
          .tolerance = 4e-5,
          .of_halves = 1e-2};
}

Operation norm_backward(const NormShape& s, std::size_t begin, bool accumulate, bool adds) {
  const std::size_t n = s.rows * s.width;
  const float before = accumulate ? 0.25F : NAN;
  return {.name = fmt::format("norm_backward of {} × {}{}{}", s.rows, s.width,
                              accumulate ? ", accumulated" : "", adds ? ", onto another" : ""),
          .arrays = {activations(numbers(n, 1), begin),
                     {.before = numbers(s.width, 2)},
                     activations(numbers(n, 4)),
                     activations(numbers(n, 5)),
                     {.before = Values(s.width, before)},
                     {.before = Values(s.width, before)}},
          .run =
              [=](Device& device, const Pointers& at) {
                const TextKernels& text = *device.kernels().text;
                Stream& stream = device.stream();
                On<float> shift(device, Values(s.width));
                On<float> moments(device, Values(2 * s.rows, NAN));
                const Activations y(device, Values(n));
                text.norm(stream, s, at[0], at[1].as<float>(), shift.data(), y.pointer(),
                          moments.data());
                text.norm_backward(stream, s, at[0], moments.data(), at[1].as<float>(), accumulate,
                                   at[2], adds ? at[3] : TypedPointer(), at[4].as<float>(),
                                   at[5].as<float>());
                return finished(device);
              },
          .expected =
              [=](std::vector<Doubles>& at) {
                const NormGradients found = norm_gradients(s, at[0], at[1], at[2]);
                for (std::size_t i = 0; i < n; ++i) {
                  at[3][i] += adds ? found.dx[i] : 0;
                  at[2][i] = adds ? k_anything : found.dx[i];
                }
                const double start = accumulate ? double{before} : 0;
                for (std::size_t i = 0; i < s.width; ++i) {
                  at[4][i] = start + found.dgain[i];
                  at[5][i] = start + found.dshift[i];
                }
                return Doubles{};
              },
          .tolerance = 4e-5};
}

Operation gelu_backward(std::size_t n) {
  Values x = numbers(n, 1);
  for (float& value : x) {
    value *= 6;
  }
  return {.name = fmt::format("gelu_backward of {}", n),
          .arrays = {activations(x), activations(numbers(n, 2))},
          .run =
              [=](Device& device, const Pointers& at) {
                device.kernels().text->gelu_backward(device.stream(), n, at[0], at[1]);
                return finished(device);
              },
          .expected =
              [](std::vector<Doubles>& at) {
                for (std::size_t i = 0; i < at[0].size(); ++i) {
                  at[1][i] *= gelu_slope_at(at[0][i]);
                }
                return Doubles{};
              },
          .tolerance = 2e-6};
}

// What is masked: of five tokens in four rows, at most three.

const Ids k_masked = {0, 4, -1, 2, 3, 4, -1, -1, -1, 1, -1, -1};

MaskedShape masked_shape(std::size_t width) { return {4, 5, 3, width}; }

Operation move_masked(std::size_t width, bool is_gathering) {
  const MaskedShape s = masked_shape(width);
  const std::size_t all = s.rows * s.length * width;
  return {.name = fmt::format("{} of {}", is_gathering ? "gather_masked" : "scatter_masked", width),
          .arrays = {activations(numbers(all, 1)), activations(numbers(s.slots() * width, 2))},
          .run =
              [=](Device& device, const Pointers& at) {
                On<std::int32_t> masked(device, k_masked);
                const TextKernels& text = *device.kernels().text;
                is_gathering ? text.gather_masked(device.stream(), s, masked.data(), at[0], at[1])
                             : text.scatter_masked(device.stream(), s, masked.data(), at[1], at[0]);
                return finished(device);
              },
          .expected =
              [=](std::vector<Doubles>& at) {
                for (std::size_t i = 0; i < at[1].size(); ++i) {
                  const std::size_t slot = i / width;
                  const bool is_empty = k_masked[slot] < 0;
                  const std::size_t token = slot / s.most_masked * s.length +
                                            static_cast<std::size_t>(is_empty ? 0 : k_masked[slot]);
                  double& one = at[0][token * width + i % width];
                  if (is_gathering) {
                    at[1][i] = is_empty ? 0 : one;
                  } else if (!is_empty) {
                    one = at[1][i];
                  }
                }
                return Doubles{};
              },
          .tolerance = 0,
          .of_halves = 0};
}

Operation masked_cross_entropy(std::size_t width) {
  const MaskedShape s = masked_shape(width);
  Values logits = numbers(s.slots() * width, 5);
  const Ids targets = ids_below(s.slots(), width);
  const auto target = [&](std::size_t slot) -> float& {
    return logits[slot * width + static_cast<std::size_t>(targets[slot])];
  };
  target(0) = 3;                                                // Right,
  target(1) = 3;                                                // and so where another
  logits[width + static_cast<std::size_t>(targets[1]) % 7] = 3; // is as large;
  logits[3 * width + 5] = 1000;                                 // no exponential overflows,
  logits[4 * width + 5] = -INFINITY;                            // and none is no number.
  return {.name = fmt::format("masked_cross_entropy of {}", width),
          .arrays = {activations(logits)},
          .run =
              [=](Device& device, const Pointers& at) {
                On<std::int32_t> masked(device, k_masked);
                On<std::int32_t> on_device(device, targets);
                On<Score> score(device, {Score{1, 2, 3}});
                On<float> half(device, {0.5F});
                device.kernels().text->masked_cross_entropy(device.stream(), s, masked.data(),
                                                            on_device.data(), half.data(), at[0],
                                                            score.data());
                const Score found = score.read()[0];
                return Doubles{found.loss, static_cast<double>(found.correct),
                               static_cast<double>(found.count)};
              },
          .expected =
              [=](std::vector<Doubles>& at) {
                Doubles score = {1, 2, 3};
                for (std::size_t slot = 0; slot < s.slots(); ++slot) {
                  const auto first = at[0].begin() + static_cast<std::ptrdiff_t>(slot * width);
                  const auto last = first + static_cast<std::ptrdiff_t>(width);
                  if (k_masked[slot] < 0) {
                    std::fill(first, last, 0.0);
                    continue;
                  }
                  const auto row = k_masked.begin() + static_cast<std::ptrdiff_t>(
                                                          slot / s.most_masked * s.most_masked);
                  const auto filled =
                      std::count_if(row, row + static_cast<std::ptrdiff_t>(s.most_masked),
                                    [](std::int32_t token) { return token >= 0; });
                  const auto label = static_cast<std::size_t>(targets[slot]);
                  const CrossEntropy one = cross_entropy({first, last}, label);
                  score[0] += one.loss;
                  score[1] += *std::max_element(first, last) ==
                                      *(first + static_cast<std::ptrdiff_t>(label))
                                  ? 1
                                  : 0;
                  score[2] += 1;
                  std::transform(one.change.begin(), one.change.end(), first, [&](double change) {
                    return change * 0.5 / static_cast<double>(filled);
                  });
                }
                return score;
              },
          .tolerance = 2e-6};
}

} // namespace

std::vector<Operation> text_operations() {
  std::vector<Operation> all;
  for (const DropShape& s :
       {DropShape{1, 16}, DropShape{2, 128}, DropShape{1031, 16}, DropShape{5, 28},
        DropShape{77, 39}}) { // And where rows end in a word.
    for (const Drop how : {Drop::to_another, Drop::in_place, Drop::and_add}) {
      all.push_back(drop(s, how, true));
      all.push_back(drop(s, how, false));
    }
  }
  // One row, more tokens than a block has threads, more columns, and rows that begin at no fours;
  // words that come so often that several blocks add them up.
  for (const TextShape& s :
       {TextShape{1, 1, 16}, TextShape{3, 7, 48}, TextShape{2, 150, 16}, TextShape{2, 5, 272},
        TextShape{2, 3, 1104}, TextShape{3, 5, 273}, TextShape{2, 500, 16}}) {
    const std::size_t begin = s.rows == 3 ? 1 : 0;
    all.push_back(embed(s, s.rows > 1, begin));
    all.push_back(embed_backward(s, s.rows > 1, begin));
  }
  // More rows than blocks take at once; rows that a warp keeps, a block does, and nobody; and such
  // as do not begin where 16 bytes do.
  for (const NormShape& s :
       {NormShape{1, 16, 1e-12F}, NormShape{9, 48, 1e-5F}, NormShape{70, 272, 1e-12F},
        NormShape{2200, 16, 1e-12F}, NormShape{20, 768, 1e-5F}, NormShape{9, 1008, 1e-5F},
        NormShape{20, 1040, 1e-5F}, NormShape{3, 2304, 1e-5F}, NormShape{3, 4112, 1e-5F},
        NormShape{300, 48, 1e-5F}, NormShape{9, 39, 1e-5F}, NormShape{20, 312, 1e-12F}}) {
    const std::size_t begin = s.rows == 300 ? 1 : 0;
    all.push_back(norm_of(s, begin));
    all.push_back(add_and_norm(s, begin, false));
    all.push_back(add_and_norm(s, begin, true));
    for (const bool accumulate : {false, true}) {
      all.push_back(norm_backward(s, begin, accumulate, accumulate));
    }
    all.push_back(norm_backward(s, begin, true, false));
  }
  all.push_back(gelu_backward(1037));
  for (const std::size_t width : {16, 48, 301, 5000, 8201, 8204, 30'000, 58'200}) {
    all.push_back(move_masked(width, true));
    all.push_back(move_masked(width, false));
    all.push_back(masked_cross_entropy(width));
  }
  return all;
}

} // namespace trainer::test
