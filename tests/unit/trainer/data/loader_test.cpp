#include "trainer/data/image_source.h"
#include "trainer/data/loader.h"
#include "trainer/device/cpu/cpu_device.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

using namespace trainer;

namespace {

constexpr std::size_t k_features = 2;

/// Sample i has pixels i and 255 - i.
Split numbered(std::size_t count) {
  std::vector<std::uint8_t> images;
  std::vector<std::uint8_t> labels;
  for (std::size_t i = 0; i < count; ++i) {
    images.push_back(static_cast<std::uint8_t>(i));
    images.push_back(static_cast<std::uint8_t>(255 - i));
    labels.push_back(static_cast<std::uint8_t>(i % 10));
  }
  return image_source({std::move(images), std::move(labels), 1, k_features});
}

std::vector<int> samples(const Split& split, const SamplerOptions& options) {
  std::vector<int> seen;
  CpuDevice device(portable_kernels());
  Loader loader(split, device, options);
  for (const Batch& batch : loader) {
    for (std::size_t row = 0; row < batch.rows; ++row) {
      seen.push_back(static_cast<int>(std::lround(batch[field::images][row * k_features] * 255)));
      CHECK(batch[field::labels][row] == seen.back() % 10);
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
    SamplerOptions options = sampler_options(data, 10, rank, k_ranks, 5, 120);
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
    SamplerOptions options = sampler_options(data, 10, worker, 2, 5, 120);
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
        taken += batch.counted();
      }
      CHECK(loader.position() == 203);
    }
    CHECK(taken == 203);
  }
}
