#include <doctest/doctest.h>

#include <csignal>
#include <list>
#include <thread>

#include <fmt/format.h>
#include <sys/wait.h>

#include "processes.h"
#include "tests/unit/thread.h"
#include "tests/unit/waiting.h"
#include "trainer/errors.h"

using namespace trainer;
using namespace trainer::test;
using Transport = CommOptions::Transport;

namespace {

constexpr int k_victim_step = 5;
constexpr const char* k_silent = "nothing heard"; ///< Said of who is lost by the time-out.

CommOptions impatient(Transport transport) {
  CommOptions options = options_for(transport);
  options.peer_timeout = unit::time_out(1);
  return options;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

enum class Phase { before_start, between_start_and_wait, before_barrier, before_broadcast };

/// Trains for ever; the victim sends itself `signal` in a phase of some step.
void train(Communicator& communicator, int victim, Phase phase, int signal) {
  const std::span<float> registered = communicator.allocate(5000);
  std::vector<float> ordinary(300'000);
  for (int step = 0;; ++step) {
    communicator.set_step(step);
    const auto strike_in = [&](Phase now) {
      if (communicator.rank() == victim && step == k_victim_step && now == phase) {
        raise(signal);
      }
    };
    strike_in(Phase::before_start);
    const auto ticket = communicator.start_all_reduce(registered, "registered");
    const auto second = communicator.start_all_reduce(ordinary, "ordinary");
    strike_in(Phase::between_start_and_wait);
    communicator.wait(ticket);
    communicator.wait(second);
    strike_in(Phase::before_barrier);
    communicator.barrier("step");
    strike_in(Phase::before_broadcast);
    communicator.broadcast(std::as_writable_bytes(registered), 1, "weights");
  }
}

void check_all_name(const std::vector<Ended>& ended, int victim) {
  for (std::size_t rank = 0; rank < ended.size(); ++rank) {
    CAPTURE(rank);
    CAPTURE(ended[rank].thrown);
    if (static_cast<int>(rank) != victim) {
      CHECK(contains(ended[rank].thrown, fmt::format("rank {} (", victim)));
      CHECK(contains(ended[rank].thrown, "step"));
      CHECK(ended[rank].status == 0);
    }
  }
}

} // namespace

TEST_CASE("a killed rank is named on every other rank, in every phase") {
  for (const Transport transport : {Transport::tcp, Transport::shared_memory}) {
    for (const int victim : {0, 2}) {
      for (const Phase phase : {Phase::before_start, Phase::between_start_and_wait,
                                Phase::before_barrier, Phase::before_broadcast}) {
        CAPTURE(static_cast<int>(transport));
        CAPTURE(victim);
        CAPTURE(static_cast<int>(phase));
        const auto ended = Processes(3, impatient(transport), [&](Communicator& communicator) {
                             train(communicator, victim, phase, SIGKILL);
                           }).end();
        CHECK(WTERMSIG(ended[static_cast<std::size_t>(victim)].status) == SIGKILL);
        check_all_name(ended, victim);
        for (const Ended& one : ended) {
          CHECK(!contains(one.thrown, k_silent));
        }
      }
    }
  }
}

TEST_CASE("a stopped rank is named on every other rank after the time-out" * unit::waits()) {
  std::list<Processes> worlds; // They wait at the same time.
  for (const Transport transport : {Transport::tcp, Transport::shared_memory}) {
    for (const int victim : {0, 1}) {
      worlds.emplace_back(3, impatient(transport), [&](Communicator& communicator) {
        train(communicator, victim, Phase::between_start_and_wait, SIGSTOP);
      });
    }
  }
  for (int victim = 0; Processes & world : worlds) {
    CAPTURE(victim);
    const auto ended = world.end({victim});
    check_all_name(ended, victim);
    CHECK(contains(ended[victim == 0 ? 1 : 0].thrown, k_silent));
    victim = 1 - victim;
  }
}

TEST_CASE("a killed rank is named at once by one that waits for a stopped rank, over TCP") {
  // Rank 0 receives from rank 2, which says nothing, and has nothing left to send to rank 1.
  CommOptions options = options_for(Transport::tcp);
  options.peer_timeout = 60;
  const auto ended = Processes(3, options, [](Communicator& communicator) {
                       communicator.barrier("begin");
                       if (communicator.rank() != 0) {
                         raise(SIGSTOP);
                       }
                       const std::string name = communicator.name(1); // "rank 1 (host, pid 123)"
                       const pid_t pid = std::stoi(name.substr(name.find("pid ") + 4));
                       const unit::Thread killer([pid] {
                         std::this_thread::sleep_for(std::chrono::milliseconds(300));
                         kill(pid, SIGKILL);
                       });
                       std::vector<float> buffer(1000);
                       communicator.all_reduce(buffer, "gradient");
                     }).end({1, 2});
  CAPTURE(ended[0].thrown);
  CHECK(contains(ended[0].thrown, "rank 1 ("));
  CHECK(contains(ended[0].thrown, "died or was cut off"));
  CHECK(!contains(ended[0].thrown, k_silent));
}

TEST_CASE("a rank that ends on an error of its own is named with its step") {
  for (const Transport transport : {Transport::tcp, Transport::shared_memory}) {
    for (const int victim : {0, 2}) {
      const auto thrown = run_ranks(3, impatient(transport), [&](Communicator& communicator) {
        communicator.barrier("begin");
        communicator.set_step(7);
        telling_peers(communicator, [&] {
          if (communicator.rank() == victim) {
            throw DataError("shard 3 is damaged");
          }
          communicator.barrier("next");
        });
      });
      for (int rank = 0; rank < 3; ++rank) {
        CAPTURE(thrown[static_cast<std::size_t>(rank)]);
        if (rank == victim) {
          CHECK(thrown[static_cast<std::size_t>(rank)] == "shard 3 is damaged");
        } else {
          CHECK(contains(thrown[static_cast<std::size_t>(rank)], fmt::format("rank {} (", victim)));
          CHECK(contains(thrown[static_cast<std::size_t>(rank)], "gave up at step 7"));
          CHECK(contains(thrown[static_cast<std::size_t>(rank)], ": shard 3 is damaged"));
        }
      }
    }
  }
}

TEST_CASE("ranks that end in any order after their last collective are not taken for dead" *
          unit::waits()) {
  std::list<unit::Thread> worlds;
  for (const Transport transport : {Transport::tcp, Transport::shared_memory}) {
    for (const int late : {0, 1, 2}) {
      worlds.emplace_back([=] {
        const CommOptions options = impatient(transport);
        run_ranks_cleanly(3, options, [&](Communicator& communicator) {
          communicator.barrier("last");
          if (communicator.rank() == late) { // Longer than several beats.
            std::this_thread::sleep_for(std::chrono::duration<double>(0.7 * options.peer_timeout));
          }
        });
      });
    }
  }
  for (unit::Thread& world : worlds) {
    world.join();
  }
}

TEST_CASE("a rank that leaves early is named by those that still reduce") {
  for (const Transport transport : {Transport::tcp, Transport::shared_memory}) {
    const auto thrown = run_ranks(3, impatient(transport), [&](Communicator& communicator) {
      communicator.barrier("begin");
      if (communicator.rank() != 2) {
        std::vector<float> buffer(100'000);
        communicator.all_reduce(buffer, "gradient");
      }
    });
    CAPTURE(thrown[0]);
    CAPTURE(thrown[1]);
    CHECK(contains(thrown[0], "rank 2 ("));
    CHECK(contains(thrown[1], "rank 2 ("));
    CHECK(thrown[2] == "");
  }
}

TEST_CASE("collectives that differ between ranks are named, both of them") {
  for (const Transport transport : {Transport::tcp, Transport::shared_memory}) {
    const auto thrown = run_ranks(3, impatient(transport), [&](Communicator& communicator) {
      std::vector<float> buffer(1024);
      communicator.all_reduce(buffer, "grad0");
      if (communicator.rank() == 2) {
        communicator.all_reduce(buffer, "grad1");
      } else {
        communicator.barrier("end");
      }
    });
    for (const std::string& text : thrown) {
      CAPTURE(text);
      CHECK(contains(text, "all_reduce 'grad1' of 4096 bytes"));
      CHECK(contains(text, "barrier 'end'"));
      CHECK(contains(text, "rank 2 ("));
    }
  }
}

TEST_CASE("lengths that differ between ranks are an error, not a wrong sum") {
  for (const Transport transport : {Transport::tcp, Transport::shared_memory}) {
    const auto thrown = run_ranks(2, impatient(transport), [&](Communicator& communicator) {
      std::vector<float> buffer(communicator.rank() == 0 ? 50'000 : 60'000);
      communicator.all_reduce(buffer, "grad");
    });
    for (const std::string& text : thrown) {
      CAPTURE(text);
      CHECK(contains(text, "200000 bytes"));
      CHECK(contains(text, "240000 bytes"));
    }
  }
}
