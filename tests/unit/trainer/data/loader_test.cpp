#include "trainer/data/loader.h"
#include "trainer/device/cpu/cpu_device.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>

#include "trainer/data/permutation.h"

using namespace trainer;

namespace {

constexpr std::size_t k_features = 2;

/// Sample i has pixels i and 255 - i.
Split numbered(std::size_t count) {
  Split split;
  split.count = count;
  split.features = k_features;
  std::vector<std::uint8_t> images;
  std::vector<std::uint8_t> labels;
  for (std::size_t i = 0; i < count; ++i) {
    images.push_back(static_cast<std::uint8_t>(i));
    images.push_back(static_cast<std::uint8_t>(255 - i));
    labels.push_back(static_cast<std::uint8_t>(i % 10));
  }
  split.images = std::move(images);
  split.labels = std::move(labels);
  return split;
}

std::vector<int> samples(const Split& split, const LoaderOptions& options) {
  std::vector<int> seen;
  CpuDevice device(portable_kernels());
  Loader loader(split, device, options);
  for (const Batch& batch : loader) {
    for (std::size_t row = 0; row < batch.rows; ++row) {
      seen.push_back(static_cast<int>(std::lround(batch.images[row * k_features] * 255)));
      CHECK(batch.labels[row] == seen.back() % 10);
    }
  }
  return seen;
}

} // namespace

TEST_CASE("workers with files of their own see each sample of them once an epoch") {
  // Two workers of two ranks each; the second one's files are half as long and go round twice.
  constexpr int k_ranks = 4;
  const std::array<Split, 2> splits = {numbered(80), numbered(40)};
  std::array<std::map<int, int>, 2> seen;
  for (int rank = 0; rank < k_ranks; ++rank) {
    const int worker = rank / 2;
    Dataset data;
    data.train = splits[static_cast<std::size_t>(worker)];
    data.shard = AutoShard::file;
    data.stream = worker;
    data.streams = 2;
    LoaderOptions options = loader_options(data, 10, rank, k_ranks, 5, 120);
    options.steps = 4;
    for (const int sample : samples(data.train, options)) {
      ++seen[static_cast<std::size_t>(worker)][sample];
    }
  }
  CHECK(seen[0].size() == 80);
  CHECK(seen[1].size() == 40);
  for (std::size_t worker = 0; worker < 2; ++worker) {
    for (const auto& [sample, times] : seen[worker]) {
      CHECK(times == (worker == 0 ? 1 : 2));
    }
  }
}

TEST_CASE("workers that all take everything take it in orders of their own, and can go on") {
  Dataset data;
  data.train = numbered(60);
  data.shard = AutoShard::off;
  data.streams = 2;
  std::array<std::vector<int>, 2> seen;
  for (int worker = 0; worker < 2; ++worker) {
    data.stream = worker;
    LoaderOptions options = loader_options(data, 10, worker, 2, 5, 120);
    options.steps = 6;
    auto& mine = seen[static_cast<std::size_t>(worker)];
    mine = samples(data.train, options);
    options.start = 80; // Four steps of both.
    options.steps = 2;
    CHECK(samples(data.train, options) == std::vector<int>(mine.begin() + 40, mine.end()));
  }
  CHECK(seen[0] != seen[1]);
  std::sort(seen[0].begin(), seen[0].end());
  std::sort(seen[1].begin(), seen[1].end());
  CHECK(seen[0] == seen[1]);
}

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
  const Split split = numbered(240);
  for (const int ranks : {1, 2, 3, 5}) {
    std::map<int, int> times;
    for (int rank = 0; rank < ranks; ++rank) {
      for (const int sample : samples(split, {8, rank, ranks, 1, 0, 3 * 240 / 8 / ranks})) {
        ++times[sample];
      }
    }
    CHECK(times.size() == 240);
    CHECK(std::all_of(times.begin(), times.end(), [](const auto& t) { return t.second == 3; }));
  }
}

TEST_CASE("an epoch that ends within a batch goes on with the next one") {
  const Split split = numbered(10);
  std::map<int, int> times;
  for (const int sample : samples(split, {4, 0, 1, 1, 0, 5})) {
    ++times[sample];
  }
  CHECK(times.size() == 10);
  CHECK(std::all_of(times.begin(), times.end(), [](const auto& t) { return t.second == 2; }));
}

TEST_CASE("a loader started at a position continues where another stopped") {
  const Split split = numbered(50);
  const std::vector<int> whole = samples(split, {4, 1, 2, 9, 0, 20});
  std::vector<int> parts = samples(split, {4, 1, 2, 9, 0, 13});
  const std::vector<int> rest = samples(split, {4, 1, 2, 9, 13 * 8, 7});
  parts.insert(parts.end(), rest.begin(), rest.end());
  CHECK(parts == whole);
}

TEST_CASE("with an end every sample up to it is taken once, by any number of ranks") {
  const Dataset data = synthetic_dataset(103, 1);
  for (const int ranks : {1, 2, 5, 8}) {
    std::uint64_t taken = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      CpuDevice device;
      Loader loader(data.train, device,
                    {.batch_size = 10,
                     .rank = rank,
                     .world_size = ranks,
                     .seed = 3,
                     .start = 0,
                     .steps = 1000,
                     .end = 203});
      for (const Batch& batch : loader) {
        taken += batch.is_padding ? 0 : batch.rows;
      }
      CHECK(loader.position() == 203);
    }
    CHECK(taken == 203);
  }
}
