#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>

#include "trainer/data/masking.h"

using namespace trainer;

namespace {

constexpr SpecialTokens k_special = {.pad = 0, .unknown = 1, .first = 2, .last = 3, .mask = 4};
constexpr std::size_t k_vocabulary = 1000;
constexpr std::size_t k_length = 128;

struct Row {
  std::vector<TokenId> tokens;
  std::vector<std::int32_t> positions;
  std::vector<TokenId> labels;
};

std::vector<TokenId> plain_row(std::size_t length = k_length) {
  std::vector<TokenId> tokens(length, 500);
  tokens.front() = k_special.first;
  tokens.back() = k_special.last;
  return tokens;
}

Row masked(const Masking& masking, std::uint64_t seed, std::uint64_t position,
           std::vector<TokenId> tokens = plain_row()) {
  const std::size_t most = masking.most(tokens.size());
  Row row{std::move(tokens), std::vector<std::int32_t>(most), std::vector<TokenId>(most)};
  const std::size_t count = masking(seed, position, row.tokens, row.positions, row.labels);
  row.positions.resize(count);
  row.labels.resize(count);
  return row;
}

} // namespace

TEST_CASE("masking takes the shares that it is asked for, to a thousandth") {
  for (const MaskingOptions& options :
       {MaskingOptions(), MaskingOptions{.mask = 0.2, .random = 0.25, .keep = 0},
        MaskingOptions{.mask = 0.4, .random = 0, .keep = 0.5}}) {
    const Masking masking(options, k_special, k_vocabulary);
    constexpr std::size_t k_rows = 60'000;
    double taken = 0;
    double kept = 0;
    double hidden = 0;
    for (std::size_t i = 0; i < k_rows; ++i) {
      const Row row = masked(masking, 1, i);
      taken += static_cast<double>(row.positions.size());
      for (const std::int32_t position : row.positions) {
        const TokenId token = row.tokens[static_cast<std::size_t>(position)];
        kept += token == 500 ? 1 : 0;
        hidden += token == k_special.mask ? 1 : 0;
      }
    }
    constexpr double k_inner = k_length - 2;
    const double by_chance = options.random / (k_vocabulary - 5); // Random, and the same again.
    CHECK(taken / (k_rows * k_inner) == doctest::Approx(options.mask).epsilon(0.001));
    CHECK(std::abs(kept / taken - options.keep - by_chance) < 1e-3);
    CHECK(std::abs(hidden / taken - (1 - options.keep - options.random)) < 1e-3);
  }
}

TEST_CASE("every place of a row, and every word, is taken as often as any other") {
  const Masking masking({.mask = 0.15, .random = 1, .keep = 0}, k_special, 25);
  std::vector<double> places(k_length);
  std::vector<double> words(25);
  constexpr std::size_t k_rows = 40'000;
  for (std::size_t i = 0; i < k_rows; ++i) {
    const Row row = masked(masking, 3, i);
    for (const std::int32_t position : row.positions) {
      ++places[static_cast<std::size_t>(position)];
      ++words[static_cast<std::size_t>(row.tokens[static_cast<std::size_t>(position)])];
    }
  }
  CHECK(places.front() == 0);
  CHECK(places.back() == 0);
  const auto [least, most] = std::minmax_element(places.begin() + 1, places.end() - 1);
  CHECK(*least > 0.93 * 0.15 * k_rows);
  CHECK(*most < 1.07 * 0.15 * k_rows);
  CHECK(std::accumulate(words.begin(), words.begin() + 5, 0.0) == 0);
  const auto [rarest, commonest] = std::minmax_element(words.begin() + 5, words.end());
  CHECK(*rarest > 0.97 * *commonest);
}

TEST_CASE("a row is masked alike by seed and position, and else otherwise") {
  const Masking masking({}, k_special, k_vocabulary);
  const Row row = masked(masking, 7, 1'000'000'000'000);
  const Row again = masked(masking, 7, 1'000'000'000'000);
  CHECK(row.tokens == again.tokens);
  CHECK(row.positions == again.positions);
  CHECK(std::is_sorted(row.positions.begin(), row.positions.end()));
  CHECK(row.labels == std::vector<TokenId>(row.labels.size(), 500));
  CHECK(masked(masking, 8, 1'000'000'000'000).positions != row.positions);
  CHECK(masked(masking, 7, 1'000'000'000'001).positions != row.positions);
}

TEST_CASE("what begins and ends texts is never masked, and short rows are") {
  const Masking masking({.mask = 0.9, .random = 0, .keep = 0}, k_special, k_vocabulary);
  const std::vector<TokenId> packed = {2, 9, 3, 9, 3, 9, 3};
  for (std::uint64_t i = 0; i < 100; ++i) {
    const Row row = masked(masking, 0, i, packed);
    CHECK(row.positions.size() >= 2);
    CHECK(row.tokens[2] == 3);
    CHECK(row.tokens[4] == 3);
  }
  CHECK(masked(masking, 0, 0, {2, 9, 3}).positions.size() == 1);
  CHECK(masked(masking, 0, 0, {2, 3}).positions.empty());
  CHECK(masked(masking, 0, 0, {2, 3, 3, 3}).positions.empty());
}
