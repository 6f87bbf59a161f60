#include "trainer/strategy/batch_split.h"

#include <doctest/doctest.h>

#include <array>
#include <numeric>
#include <vector>

#include "tests/unit/trainer/collectives/ranks.h"
#include "tests/unit/trainer/largest_difference.h"
#include "trainer/data/dataset.h"
#include "trainer/data/loader.h"
#include "trainer/device/cpu/cpu_device.h"
#include "trainer/run/replica.h"
#include "trainer/strategy/training_step.h"

using namespace trainer;

namespace {

using Rows = std::vector<std::size_t>;

Rows rows_for(std::size_t global_batch, const std::vector<double>& speeds) {
  return rows_by_speed(global_batch, speeds);
}

/// Eight steps of three ranks with a global batch of 48, shared out as `rows` says.
std::vector<float> train_with_shares(const std::array<std::size_t, 3>& rows) {
  std::vector<float> weights;
  test::run_ranks_cleanly(3, {}, [&](Communicator& communicator) {
    const auto rank = static_cast<std::size_t>(communicator.rank());
    const Dataset data = synthetic_dataset(300, 1);
    CpuDevice device;
    Replica replica({}, {}, device, communicator);
    replica.initialize(4);
    TrainingStep training(communicator, replica, {.buckets = 1 << 16});
    Loader loader(data.train, device, {16, communicator.rank(), 3, 4, 0, 8});
    loader.set_share(std::accumulate(rows.begin(), rows.begin() + rank, std::size_t{0}),
                     rows[rank]);
    for (const Batch& batch : loader) {
      CHECK(batch.rows == rows[rank]);
      training.run(batch);
    }
    if (rank == 0) {
      weights.assign(replica.parameters.begin(), replica.parameters.end());
    }
  });
  return weights;
}

} // namespace

TEST_CASE("shares follow speeds and add up to the global batch") {
  CHECK(rows_for(128, {1, 1}) == Rows{64, 64});
  CHECK(rows_for(128, {3, 1}) == Rows{96, 32});
  CHECK(rows_for(10, {1, 1, 1}) == Rows{4, 3, 3});
  CHECK(rows_for(100, {2, 5, 3}) == Rows{20, 50, 30});
}

TEST_CASE("a rank that is all but stopped keeps one sample, the others take the rest") {
  CHECK(rows_for(128, {1000, 0.001}) == Rows{127, 1});
  CHECK(rows_for(3, {1000, 1, 1}) == Rows{1, 1, 1});
  CHECK(rows_for(9, {1000, 1, 1, 1}) == Rows{6, 1, 1, 1});
}

TEST_CASE("unequal shares learn what equal ones learn") {
  const std::vector<float> equal = train_with_shares({16, 16, 16});
  const std::vector<float> unequal = train_with_shares({40, 1, 7});
  // Rounding alone; a step moves a weight by up to 1e-3.
  CHECK(test::largest_difference(equal, unequal) < 2e-4);
}

TEST_CASE("a rank three times as slow gets a third of the others' share") {
  test::run_ranks_cleanly(3, {}, [](Communicator& communicator) {
    BatchSplit split(true, 70, communicator);
    const double seconds_a_row = communicator.rank() == 1 ? 3 : 1;
    WorkDone done;
    int changes = 0;
    for (int step = 0; step < 200; ++step) {
      done.rows += split.rows();
      done.seconds += seconds_a_row * static_cast<double>(split.rows());
      changes += split.after_step(done) ? 1 : 0;
    }
    CHECK(split.all_rows() == Rows{90, 30, 90});
    CHECK(split.first() ==
          std::array<std::size_t, 3>{0, 90, 120}.at(static_cast<std::size_t>(communicator.rank())));
    CHECK(changes == 1); // Speeds that stay the same move nothing.
  });
}

TEST_CASE("equal shares stay equal, whatever the speeds") {
  test::run_ranks_cleanly(2, {}, [](Communicator& communicator) {
    BatchSplit split(false, 64, communicator);
    for (std::size_t step = 1; step < 100; ++step) {
      CHECK_FALSE(
          split.after_step({static_cast<double>(step) * (communicator.rank() + 1.0), 64 * step}));
    }
    CHECK(split.all_rows() == Rows{64, 64});
  });
}
