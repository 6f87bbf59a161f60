#include "trainer/monitor/metrics.h"

#include <doctest/doctest.h>

#include "trainer/errors.h"
#include "trainer/strategy/mirrored.h"

namespace trainer {

TEST_CASE("scores are summed to the last sample beyond 2^24, where float32 no longer counts") {
  constexpr std::int64_t k_many = (std::int64_t{1} << 24) + 1;
  run_replicas(2, CrossDeviceOps::shares, [&](Communicator& communicator) {
    const Score mine{0.5, k_many, k_many + 2 * communicator.rank()};
    const Score all = sum_over_ranks(mine, communicator);
    if (all.loss != 1 || all.correct != 2 * k_many || all.count != 2 * k_many + 2) {
      throw Error("counted otherwise");
    }
  });
}

} // namespace trainer
