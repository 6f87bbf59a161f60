#include <doctest/doctest.h>

#include <atomic>

#include "ranks.h"
#include "tests/unit/waiting.h"
#include "trainer/errors.h"

using namespace trainer;
using namespace trainer::test;

namespace {

constexpr std::size_t k_more_than_sockets_hold = 4UL << 20;

CommOptions over_tcp() { return options_for(CommOptions::Transport::tcp); }

/// As computing does: without a call of the communicator.
void await(const std::atomic<bool>& flag) {
  unit::wait_until([&] { return flag.load(); });
}

} // namespace

TEST_CASE("a started all-reduce finishes while its caller computes, over TCP") {
  std::atomic<bool> peer_has_sum{false};
  run_ranks_cleanly(2, over_tcp(), [&](Communicator& communicator) {
    std::vector<float> gradient(k_more_than_sockets_hold, 1);
    if (communicator.rank() == 0) {
      const auto ticket = communicator.start_all_reduce(gradient, "gradient");
      await(peer_has_sum);
      communicator.wait(ticket);
    } else {
      communicator.all_reduce(gradient, "gradient");
      peer_has_sum = true;
    }
  });
}

TEST_CASE("what was started after a collective that is waited for goes on as well, over TCP") {
  std::atomic<bool> peer_has_sum{false};
  run_ranks_cleanly(2, over_tcp(), [&](Communicator& communicator) {
    std::vector<float> first(1000, 1);
    std::vector<float> second(k_more_than_sockets_hold, 1);
    const auto early = communicator.start_all_reduce(first, "first");
    const auto late = communicator.start_all_reduce(second, "second");
    communicator.wait(early);
    if (communicator.rank() == 0) {
      await(peer_has_sum);
    }
    communicator.wait(late);
    peer_has_sum = true;
  });
}

TEST_CASE("a rank that gives up with an all-reduce under way ends, and its peer too") {
  for (const int victim : {0, 1}) {
    const auto thrown = run_ranks(2, over_tcp(), [&](Communicator& communicator) {
      const std::span<float> gradient = communicator.allocate(1000);
      communicator.barrier("begin");
      if (communicator.rank() == victim) {
        communicator.start_all_reduce(gradient, "gradient");
        throw DataError("shard 3 is damaged");
      }
      communicator.barrier("other");
    });
    CHECK(thrown[static_cast<std::size_t>(victim)] == "shard 3 is damaged");
    CHECK(thrown[static_cast<std::size_t>(1 - victim)] != "");
  }
}
