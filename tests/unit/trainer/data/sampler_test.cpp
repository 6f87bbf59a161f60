#include "trainer/data/sampler.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

using namespace trainer;

namespace {

/// The numbers of all samples that a rank takes, but of padding.
std::vector<std::uint64_t> taken(Sampler sampler) {
  std::vector<std::uint64_t> all;
  while (const auto share = sampler.next()) {
    std::vector<std::uint64_t> samples(share->rows);
    sampler.number(share->position, samples);
    all.insert(all.end(), samples.begin(),
               samples.begin() + static_cast<std::ptrdiff_t>(share->weight * share->rows));
  }
  return all;
}

std::map<std::uint64_t, int> times_of_all(std::uint64_t count, int ranks, SamplerOptions options) {
  std::map<std::uint64_t, int> times;
  options.world_size = ranks;
  for (options.rank = 0; options.rank < ranks; ++options.rank) {
    for (const std::uint64_t sample : taken({count, options})) {
      ++times[sample];
    }
  }
  return times;
}

bool all_are(const std::map<std::uint64_t, int>& times, int expected) {
  return std::all_of(times.begin(), times.end(),
                     [&](const auto& one) { return one.second == expected; });
}

} // namespace

TEST_CASE("a permutation is a bijection at any size") {
  for (const std::uint64_t size : {1, 2, 3, 10, 64, 65, 1000, 60000}) {
    const Permutation order(size, 7, 3);
    std::vector<bool> hit(size);
    for (std::uint64_t i = 0; i < size; ++i) {
      REQUIRE(order(i) < size);
      hit[order(i)] = true;
    }
    CHECK(std::all_of(hit.begin(), hit.end(), [](bool b) { return b; }));
  }
}

TEST_CASE("an order is that of its description, so that another build continues a run in it") {
  const Permutation order(60'000, 7, 3); // Worked out in Python.
  CHECK(order(0) == 55164);
  CHECK(order(1) == 57788);
  CHECK(order(2) == 52291);
  CHECK(order(3) == 2994);
  CHECK(order(4) == 9201);
  CHECK(order(59'999) == 49927);
}

TEST_CASE("epochs and seeds have orders of their own") {
  const Permutation first(1000, 7, 0);
  const Permutation next_epoch(1000, 7, 1);
  const Permutation other_seed(1000, 8, 0);
  int same_epoch = 0;
  int same_seed = 0;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    same_epoch += first(i) == next_epoch(i) ? 1 : 0;
    same_seed += first(i) == other_seed(i) ? 1 : 0;
  }
  CHECK(same_epoch < 20);
  CHECK(same_seed < 20);
}

TEST_CASE("ranks see every sample once an epoch and never the same one, at any world size") {
  for (const int ranks : {1, 2, 3, 5}) {
    const auto times =
        times_of_all(240, ranks, {.batch_size = 8, .seed = 1, .steps = 3 * 240 / 8 / ranks});
    CHECK(times.size() == 240);
    CHECK(all_are(times, 3));
  }
}

TEST_CASE("an epoch that ends within a batch goes on with the next one") {
  const auto times = times_of_all(10, 1, {.batch_size = 4, .seed = 1, .steps = 5});
  CHECK(times.size() == 10);
  CHECK(all_are(times, 2));
}

TEST_CASE("a global batch that ranks do not divide is taken once, in shares that differ by a row") {
  for (const int ranks : {1, 2, 3, 7}) {
    std::size_t rows = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      Sampler sampler(100, {.rank = rank, .world_size = ranks, .steps = 1, .global_batch = 20});
      const auto share = sampler.next();
      REQUIRE(share);
      CHECK(share->position == rows);
      CHECK(share->global_rows == 20);
      CHECK(share->rows - 20 / static_cast<std::size_t>(ranks) <= 1);
      rows += share->rows;
    }
    CHECK(rows == 20);
  }
}

TEST_CASE("with an end every sample up to it is taken once, and who has none left pads a row") {
  for (const int ranks : {1, 2, 5, 8}) {
    const auto times = times_of_all(
        203, ranks, {.batch_size = 10, .seed = 3, .steps = 1000, .end = 203, .samples = 203});
    CHECK(times.size() == 203);
    CHECK(all_are(times, 1));
  }
  Sampler sampler(
      64, {.batch_size = 4, .rank = 0, .world_size = 4, .start = 16, .steps = 2, .end = 19});
  const auto share = sampler.next();
  REQUIRE(share);
  CHECK(share->weight == 0);
  CHECK(share->rows == 1);
  CHECK(share->global_rows == 3);
  CHECK(sampler.position() == 19);
  CHECK_FALSE(sampler.next());
}

TEST_CASE("shares that were set are taken of each global batch, up to a shorter last one") {
  Sampler sampler(100, {.batch_size = 8, .rank = 1, .world_size = 2, .steps = 9, .end = 36});
  sampler.set_share(12, 4);
  for (const std::uint64_t first : {12, 28}) {
    const auto share = sampler.next();
    REQUIRE(share);
    CHECK(share->position == first);
    CHECK(share->rows == 4);
  }
  const auto last = sampler.next();
  REQUIRE(last);
  CHECK(last->position == 34);
  CHECK(last->rows == 2);
}

TEST_CASE("workers with streams of their own have positions of their own, and count together") {
  Sampler sampler(50, {.batch_size = 5,
                       .rank = 1,
                       .world_size = 2,
                       .start = 40,
                       .steps = 1,
                       .streams = 2,
                       .samples = 100});
  CHECK(sampler.stream_batch() == 10);
  const auto share = sampler.next();
  REQUIRE(share);
  CHECK(share->position == 25);
  CHECK(share->global_rows == 20);
  CHECK(sampler.position() == 60);
  CHECK(sampler.epochs() == doctest::Approx(0.6));
}

TEST_CASE("samples of a stream are taken in the order they come") {
  Sampler sampler(50, {.batch_size = 4, .steps = 2}, true);
  sampler.next();
  const auto share = sampler.next();
  REQUIRE(share);
  std::vector<std::uint64_t> samples(share->rows);
  sampler.number(share->position, samples);
  CHECK(samples == std::vector<std::uint64_t>{4, 5, 6, 7});
}

TEST_CASE("a run of positions is one epoch's, as their numbers are") {
  Sampler sampler(10, {.seed = 4});
  std::vector<std::uint64_t> numbers(25);
  sampler.number(7, numbers);
  std::vector<std::uint64_t> of_runs;
  while (of_runs.size() < numbers.size()) {
    const Sampler::Run run = sampler.run(7 + of_runs.size(), numbers.size() - of_runs.size());
    for (std::size_t i = 0; i < run.count; ++i) {
      of_runs.push_back(run.order(run.first + i));
    }
  }
  CHECK(of_runs == numbers);
}
