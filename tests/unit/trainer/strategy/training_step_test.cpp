#include "trainer/strategy/training_step.h"

#include <doctest/doctest.h>

#include "tests/unit/trainer/collectives/ranks.h"
#include "tests/unit/trainer/largest_difference.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/collectives/single_rank.h"
#include "trainer/data/dataset.h"
#include "trainer/data/loader.h"
#include "trainer/device/cpu/cpu_device.h"

using namespace trainer;

namespace {

constexpr std::uint64_t k_seed = 4;
constexpr int k_ranks = 3;

using Weights = std::vector<float>;

Weights weights_of(const Replica& replica) {
  const auto span = replica.parameters;
  return {span.begin(), span.end()};
}

/// Trains with a global batch of 48 and gives this rank's weights.
Weights train_rank(Communicator& communicator, std::int64_t steps, std::size_t bucket_bytes) {
  const std::size_t batch = 48 / static_cast<std::size_t>(communicator.world_size());
  const Dataset data = synthetic_dataset(300, 1);
  CpuDevice device;
  Replica replica({}, {}, device, communicator);
  replica.initialize(k_seed);
  TrainingStep training(communicator, replica, {.buckets = bucket_bytes});
  Loader loader(data.train, device,
                {batch, communicator.rank(), communicator.world_size(), k_seed, 0, steps});
  for (const Batch& b : loader) {
    training.run(b);
  }
  return weights_of(replica);
}

std::vector<Weights> train_ranks(int ranks, std::size_t bucket_bytes) {
  std::vector<Weights> all(static_cast<std::size_t>(ranks));
  test::run_ranks_cleanly(ranks, {}, [&](Communicator& communicator) {
    all[static_cast<std::size_t>(communicator.rank())] = train_rank(communicator, 8, bucket_bytes);
  });
  return all;
}

} // namespace

TEST_CASE("all ranks hold the same bits, run after run") {
  const auto first = train_ranks(k_ranks, 1 << 16);
  CHECK(first[1] == first[0]);
  CHECK(first[2] == first[0]);
  CHECK(train_ranks(k_ranks, 1 << 16)[0] == first[0]);
}

TEST_CASE("three ranks learn what one rank with their global batch learns") {
  const Weights together = train_ranks(k_ranks, 1 << 16)[0];
  const Weights alone = train_ranks(1, 1 << 16)[0];
  // Rounding alone; a step moves a weight by up to 1e-3.
  CHECK(test::largest_difference(together, alone) < 2e-4);
}

TEST_CASE("a large model's step is few all-reduces, a small one's are worth their latency") {
  constexpr std::size_t k_small = 101'770;
  CHECK(bucket_floats(0, k_small) == (128 << 10) / sizeof(float));
  CHECK(bucket_floats(0, 300'000'000) == 300'000'000 / 64);
  CHECK(bucket_floats(1000, k_small) == 250);
  CHECK(bucket_floats(SIZE_MAX, k_small) > k_small);
}

TEST_CASE("buckets are updated as they come unless a step looks at all gradients before") {
  const auto updates = [](Precision precision, const StepOptions& options) {
    const auto alone = make_single_rank();
    CpuDevice device;
    Replica replica({}, {}, device, *alone);
    replica.compute_in(precision);
    return TrainingStep(*alone, replica, options).exchange().updates();
  };
  using Updates = Exchange::Updates;
  const StepOptions unchecked{.buckets = 0, .checks_overflow = false};
  CHECK(updates(Precision::fp32, {.buckets = 0}) == Updates::at_once);
  CHECK(updates(Precision::fp32, {.buckets = 0, .clip_norm = 1}) == Updates::together);
  CHECK(updates(Precision::bf16, {.buckets = 0}) == Updates::together);
  CHECK(updates(Precision::bf16, unchecked) == Updates::at_once);
  CHECK(updates(Precision::fp16, unchecked) == Updates::together);
}
