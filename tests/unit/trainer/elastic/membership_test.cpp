#include "trainer/elastic/membership.h"

#include <doctest/doctest.h>

#include <atomic>
#include <thread>

#include <fmt/format.h>

#include "../collectives/ranks.h"
#include "tests/unit/thread.h"
#include "tests/unit/waiting.h"
#include "trainer/errors.h"

using namespace trainer;

namespace {

CommOptions quick(double rendezvous_timeout = 20, double peer_timeout = 4) {
  CommOptions options;
  options.transport = CommOptions::Transport::tcp;
  options.rendezvous_timeout = rendezvous_timeout;
  options.peer_timeout = peer_timeout;
  return options;
}

/// A member that adds up what the ranks give until it has been through `rounds` rounds of its own
/// making; its state is the sum of rounds.
struct Worker {
  Worker(int rank, int world_size, int port, ElasticLimits limits, double timeout = 20,
         double peer_timeout = 4)
      : membership(test::cluster_of(rank, world_size, port), quick(timeout, peer_timeout), limits) {
  }

  Generation meet() { return membership.meet(state); }

  Membership membership;
  MemberState state;
};

float sum_of_ones(const Generation& generation) {
  const auto one = generation.communicator->allocate(16);
  one[0] = 1;
  generation.communicator->all_reduce(one, "ones");
  return one[0];
}

} // namespace

TEST_CASE("those that are left of an elastic job form anew, led by the lowest, without the first") {
  const test::HeldPort port;
  std::vector<std::string> lost(3);
  const auto thrown = test::run_threads([&] {
    std::vector<std::function<void()>> bodies;
    for (int rank = 0; rank < 3; ++rank) {
      bodies.emplace_back([&, rank] {
        Worker worker(rank, 3, port.number(), {.min_workers = 2});
        {
          const Generation generation = worker.meet();
          CHECK(generation.number == 1);
          CHECK(generation.step == -1);
          CHECK(generation.communicator->rank() == rank);
          CHECK(sum_of_ones(generation) == 3);
          if (rank == 0) {
            return; // Its listener closes: it has ended.
          }
          CHECK_THROWS_AS(
              {
                for (;;) {
                  sum_of_ones(generation);
                }
              },
              PeerError);
        }
        worker.state = {1, 10 + rank, false};
        const Generation generation = worker.meet();
        CHECK(generation.number > 1);
        CHECK(generation.communicator->rank() == rank - 1);
        CHECK(generation.source == 1); // Rank 2 has done the most steps.
        CHECK(generation.step == 12);
        CHECK(sum_of_ones(generation) == 2);
        for (const auto& name : generation.lost) {
          lost[static_cast<std::size_t>(generation.communicator->rank())] = name;
        }
      });
    }
    return bodies;
  }());
  for (const auto& text : thrown) {
    CHECK(text == "");
  }
  CHECK(lost[0].starts_with("rank 0 ("));
}

TEST_CASE("a member that answered and ended before it came to the meeting is seen to end" *
          unit::waits()) {
  constexpr double k_peer_timeout = unit::time_out(2);
  const test::HeldPort port;
  std::atomic<bool> has_met = false;
  std::atomic<bool> has_gone_on = false;
  const auto member = [&](int rank, double lives) {
    return [&, rank, lives] {
      Worker worker(rank, 3, port.number(), {.min_workers = 1}, 20, k_peer_timeout);
      (void)worker.meet(); // Its communicator goes with a goodbye; its listener is still there.
      if (lives > 0) {
        unit::wait_until([&] { return has_met.load(); });
      }
      std::this_thread::sleep_for(std::chrono::duration<double>(lives));
      CHECK((lives == 0 || !has_gone_on));
    };
  };
  const auto thrown = test::run_threads({
      [&] {
        Worker worker(0, 3, port.number(), {.min_workers = 1}, 20, k_peer_timeout);
        { const Generation generation = worker.meet(); }
        has_met = true;
        const Generation generation = worker.meet();
        has_gone_on = true;
        if (generation.communicator == nullptr) {
          throw Error("it takes itself for left behind");
        }
        CHECK(generation.communicator->world_size() == 1);
        CHECK(generation.lost.size() == 2);
      },
      member(1, 0.7 * k_peer_timeout), // Longer than the others would have waited for rank 0.
      member(2, 0),
  });
  for (const auto& text : thrown) {
    CHECK(text == "");
  }
}

TEST_CASE("a newcomer is let in when the members meet again, and a restarted rank 0 finds them") {
  const test::HeldPort port;
  const auto train_on = [](Worker& worker) {
    for (;;) {
      const Generation generation = worker.meet();
      try {
        if (generation.step == 5 && generation.communicator->world_size() == 3) {
          CHECK(sum_of_ones(generation) == 3);
          return;
        }
        worker.state = {generation.number, 5, false};
        // Whoever leads sees the newcomer; the others are told by the sum.
        const auto vote = generation.communicator->allocate(16);
        do {
          vote[0] = generation.communicator->rank() == 0 && worker.membership.has_newcomers()
                        ? 1.0F
                        : 0.0F;
          generation.communicator->all_reduce(vote, "votes");
        } while (vote[0] == 0);
      } catch (const PeerError&) {
        continue; // The first has gone.
      }
    }
  };
  const auto thrown = test::run_threads({
      [&] {
        {
          Worker worker(0, 3, port.number(), {.min_workers = 1});
          (void)worker.meet();
        }
        Worker worker(0, 3, port.number(), {.min_workers = 1});
        const Generation generation = worker.meet();
        CHECK(generation.number > 1);
        CHECK(generation.communicator->rank() == 2);
        CHECK(generation.source != 2);
        CHECK(sum_of_ones(generation) == 3);
      },
      [&] {
        Worker worker(1, 3, port.number(), {.min_workers = 1});
        train_on(worker);
      },
      [&] {
        Worker worker(2, 3, port.number(), {.min_workers = 1});
        train_on(worker);
      },
  });
  for (const auto& text : thrown) {
    CHECK(text == "");
  }
}

TEST_CASE("too few members wait until the time-out and say what they waited for" * unit::waits()) {
  constexpr double k_time_out = unit::time_out(1);
  const test::HeldPort port;
  const auto thrown =
      test::run_threads({[&] {
                           Worker worker(0, 2, port.number(), {.min_workers = 2});
                           sum_of_ones(worker.meet());
                         },
                         [&] {
                           Worker worker(1, 2, port.number(), {.min_workers = 2}, k_time_out);
                           sum_of_ones(worker.meet());
                           worker.state = {1, 5, false};
                           (void)worker.meet();
                         }});
  CHECK(thrown[0] == "");
  CHECK(thrown[1].find(fmt::format("waited {:g} s", k_time_out)) != std::string::npos);
  CHECK(thrown[1].find("--min-workers=2 are needed to continue") != std::string::npos);
}

TEST_CASE("an elastic job begins at the time-out with those that are there, if they are enough" *
          unit::waits()) {
  const test::HeldPort port;
  std::vector<std::function<void()>> bodies;
  for (int rank = 0; rank < 2; ++rank) {
    bodies.emplace_back([&, rank] {
      Worker worker(rank, 3, port.number(), {.min_workers = 2}, unit::time_out(1));
      const Generation generation = worker.meet();
      CHECK(generation.communicator->world_size() == 2);
      CHECK(sum_of_ones(generation) == 2);
    });
  }
  for (const auto& text : test::run_threads(bodies)) {
    CHECK(text == "");
  }
}

TEST_CASE("a member that comes when the job is over is told so") {
  const test::HeldPort port;
  Worker alone(0, 1, port.number(), {.min_workers = 1});
  (void)alone.meet();
  alone.membership.set_over();
  Worker late(1, 2, port.number(), {.min_workers = 1});
  CHECK(late.meet().communicator == nullptr);
}

TEST_CASE("no more than --max-workers train, and others wait") {
  const test::HeldPort port;
  Worker alone(0, 1, port.number(), {.min_workers = 1, .max_workers = 1});
  (void)alone.meet();
  unit::Thread spare([&] {
    Worker worker(1, 2, port.number(), {.min_workers = 1, .max_workers = 1});
    CHECK(worker.meet().communicator == nullptr);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  CHECK_FALSE(alone.membership.has_newcomers());
  alone.membership.set_over();
  spare.join();
}

TEST_CASE("a member of another job is refused") {
  const test::HeldPort port;
  Worker alone(0, 1, port.number(), {.min_workers = 1});
  (void)alone.meet();
  Cluster other = test::cluster_of(1, 2, port.number());
  other.job_token = "another";
  Membership membership(other, quick(unit::time_out(2)), {.min_workers = 1});
  CHECK_THROWS_WITH_AS((void)membership.meet({}), doctest::Contains("the job token differs"),
                       ClusterError);
}
