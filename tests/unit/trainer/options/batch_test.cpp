#include "trainer/options/batch.h"

#include <doctest/doctest.h>

#include "tests/unit/trainer/temp_folder.h"
#include "trainer/errors.h"

using namespace trainer;

namespace {

TrainerOptions batch(std::int64_t global, std::int64_t rows, std::int64_t passes) {
  TrainerOptions options;
  options.global_batch = global;
  options.batch_size = rows;
  options.accumulation_steps = passes;
  return options;
}

} // namespace

TEST_CASE("elastic workers keep a global batch that was given") {
  TrainerOptions options = batch(100, 0, 0);
  settle_batch(options, 3, true);
  CHECK(options.batch_size == 64);
  CHECK(options.accumulation_steps == 1);
  options = batch(100, 8, 2);
  CHECK(contains(message_of<UsageError>([&] { settle_batch(options, 3, true); }),
                 "--accumulation-steps=2"));
}

TEST_CASE("of the three sizes of a batch two give the third") {
  struct Case {
    TrainerOptions given;
    std::int64_t rows;
    std::int64_t passes;
  };
  for (Case& one : std::vector<Case>{{batch(64, 8, 0), 8, 2},
                                     {batch(64, 0, 4), 4, 4},
                                     {batch(0, 8, 3), 8, 3},
                                     {batch(64, 0, 0), 16, 1},
                                     {batch(0, 8, 0), 8, 1},
                                     {batch(0, 0, 0), 64, 1},
                                     {batch(0, 0, 2), 64, 2},
                                     {batch(64, 8, 2), 8, 2}}) {
    settle_batch(one.given, 4);
    CHECK(one.given.batch_size == one.rows);
    CHECK(one.given.accumulation_steps == one.passes);
  }
}

TEST_CASE("it is said where each number of a batch comes from") {
  TrainerOptions options = batch(64, 8, 0);
  options.config = "ds.json";
  options.given = {"--batch-size"};
  CHECK(settle_batch(options, 4) == "a step has 64 samples (train_batch_size): 8 per pass and rank "
                                    "(--batch-size) × 2 passes (inferred) × 4 ranks");
  options = batch(0, 0, 0);
  CHECK(settle_batch(options, 4).empty());
  options = batch(6, 0, 0);
  CHECK(settle_batch(options, 1) == "a step has 6 samples (--global-batch-size): 6 per pass and "
                                    "rank (inferred) × 1 pass (inferred) × 1 rank");
}

TEST_CASE("sizes of a batch that contradict each other are an error") {
  const auto refused = [](TrainerOptions options) {
    return message_of<UsageError>([&] { settle_batch(options, 4); });
  };
  CHECK(refused(batch(64, 8, 4)) == "--global-batch-size=64: is not --batch-size=8 × "
                                    "--accumulation-steps=4 × 4 ranks = 128; drop one of them");
  CHECK(refused(batch(63, 8, 0)) ==
        "--global-batch-size=63: is not a multiple of --batch-size=8 × 4 ranks");
  CHECK(refused(batch(6, 0, 0)) == "--global-batch-size=6: is not a multiple of 4 ranks");
  CHECK(refused(batch(1 << 30, 0, 0)) ==
        "--global-batch-size=1073741824: makes passes of 268435456 samples, where 1048576 are the "
        "most; give --batch-size, or more --accumulation-steps");
}
