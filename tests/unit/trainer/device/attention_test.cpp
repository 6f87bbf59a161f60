// Attention on the CPU beside plain loops in float64.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "trainer/device/cpu/cpu_device.h"

using namespace trainer;

namespace {

using Values = std::vector<float>;

Values numbers(std::size_t count, std::uint32_t seed) {
  Values values(count);
  std::uint32_t state = seed;
  for (float& value : values) {
    state = state * 1664525 + 1013904223;
    value = static_cast<float>(state >> 8) / (1 << 23) - 1;
  }
  return values;
}

struct Inputs {
  explicit Inputs(const AttentionShape& s)
      : shape(s), lengths(s.rows, static_cast<std::int32_t>(s.length)),
        keep(s.lines() * s.words_a_line()) {
    const std::size_t n = s.rows * s.length * s.width();
    for (std::uint32_t i = 0; i < 4; ++i) {
      arrays.push_back(numbers(n, i + 1));
    }
    lengths.back() = static_cast<std::int32_t>(s.length * 2 / 3);
    for (std::size_t i = 0; i < keep.size(); ++i) {
      keep[i] = static_cast<std::uint16_t>(i * 40503 + (i >> 3));
    }
  }
  Dropped dropped() { return drops ? Dropped{keep.data(), 1.25F} : Dropped{}; }

  AttentionShape shape;
  std::vector<std::int32_t> lengths;
  std::vector<std::uint16_t> keep;
  std::vector<Values> arrays; ///< Queries, keys, values and the gradient of the context.
  bool drops = false;
};

/// The context, and the gradients of queries, keys and values.
std::vector<Values> by_kernels(Inputs& in, const CpuKernels& kernels) {
  CpuDevice device(kernels);
  const TextKernels& text = *device.kernels().text;
  const AttentionShape& s = in.shape;
  std::vector<Values> to(4, Values(in.arrays[0].size(), NAN));
  Values p(text.attention_room(device.stream(), s), NAN);
  Values room(p.size(), NAN);
  text.attention(device.stream(), s, in.lengths.data(), in.dropped(),
                 {in.arrays[0].data(), in.arrays[1].data(), in.arrays[2].data()}, p.data(),
                 to[0].data());
  text.attention_backward(device.stream(), s, in.lengths.data(), in.dropped(),
                          {in.arrays[0].data(), in.arrays[1].data(), in.arrays[2].data()}, p.data(),
                          to[0].data(), in.arrays[3].data(), room.data(),
                          {to[1].data(), to[2].data(), to[3].data()});
  return to;
}

/// The same of one query of a head, added to `to`. `at`: the first value of a token.
template <typename At>
void add_query(const Inputs& in, std::size_t row, std::size_t head, std::size_t query, const At& at,
               std::vector<std::vector<double>>& to) {
  const AttentionShape& s = in.shape;
  const auto length = static_cast<std::size_t>(in.lengths[row]);
  const std::size_t keys = s.is_causal && query < length ? query + 1 : length;
  const std::size_t line = (row * s.heads + head) * s.length + query;
  const auto dot = [&](std::size_t a, std::size_t a_token, std::size_t b, std::size_t b_token) {
    double sum = 0;
    for (std::size_t i = 0; i < s.depth; ++i) {
      sum += double{in.arrays[a][at(a_token) + i]} * double{in.arrays[b][at(b_token) + i]};
    }
    return sum;
  };
  const double scale = 1 / std::sqrt(static_cast<double>(s.depth));
  std::vector<double> p(keys);
  std::vector<double> by(keys); // What dropout multiplies by.
  double sum = 0;
  for (std::size_t key = 0; key < keys; ++key) {
    p[key] = std::exp(scale * dot(0, query, 1, key));
    sum += p[key];
    const bool kept = (in.keep[line * s.words_a_line() + key / 16] >> key % 16 & 1) != 0;
    by[key] = !in.drops ? 1 : kept ? 1.25 : 0;
  }
  double mean = 0;
  for (std::size_t key = 0; key < keys; ++key) {
    p[key] /= sum;
    mean += p[key] * by[key] * dot(3, query, 2, key);
  }
  for (std::size_t key = 0; key < keys; ++key) {
    const double ds = p[key] * (by[key] * dot(3, query, 2, key) - mean) * scale;
    for (std::size_t i = 0; i < s.depth; ++i) {
      to[0][at(query) + i] += p[key] * by[key] * double{in.arrays[2][at(key) + i]};
      to[1][at(query) + i] += ds * double{in.arrays[1][at(key) + i]};
      to[2][at(key) + i] += ds * double{in.arrays[0][at(query) + i]};
      to[3][at(key) + i] += p[key] * by[key] * double{in.arrays[3][at(query) + i]};
    }
  }
}

std::vector<std::vector<double>> by_loops(const Inputs& in) {
  const AttentionShape& s = in.shape;
  std::vector<std::vector<double>> to(4, std::vector<double>(in.arrays[0].size()));
  for (std::size_t row = 0; row < s.rows; ++row) {
    for (std::size_t head = 0; head < s.heads; ++head) {
      const auto at = [&](std::size_t token) {
        return (row * s.length + token) * s.width() + head * s.depth;
      };
      for (std::size_t query = 0; query < s.length; ++query) {
        add_query(in, row, head, query, at, to);
      }
    }
  }
  return to;
}

} // namespace

TEST_CASE("attention and its gradients are those of plain loops, of one block of queries or more") {
  for (const AttentionShape& s :
       {AttentionShape{2, 20, 2, 16}, AttentionShape{2, 300, 1, 8},
        AttentionShape{2, 5, 1, 13, true}, AttentionShape{2, 129, 2, 16, true},
        AttentionShape{2, 300, 1, 8, true}}) {
    Inputs in(s);
    CAPTURE(s.length);
    CAPTURE(s.is_causal);
    for (const bool drops : {false, true}) {
      in.drops = drops;
      const auto expected = by_loops(in);
      for (const CpuKernels* kernels : {&portable_kernels(), &best_kernels()}) {
        const std::vector<Values> found = by_kernels(in, *kernels);
        for (std::size_t array = 0; array < found.size(); ++array) {
          CAPTURE(array);
          std::size_t wrong = 0;
          for (std::size_t i = 0; i < found[array].size(); ++i) {
            wrong += std::abs(double{found[array][i]} - expected[array][i]) <= 2e-5 ? 0 : 1;
          }
          CHECK(wrong == 0);
        }
      }
    }
  }
}
