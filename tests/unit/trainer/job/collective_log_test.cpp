#include "trainer/job/collective_log.h"

#include <doctest/doctest.h>

#include <future>
#include <thread>

#include <fmt/format.h>

#include "../collectives/ranks.h"
#include "../temp_folder.h"
#include "tests/unit/waiting.h"

using namespace trainer;
using namespace trainer::test;
using Kind = CommOptions::Transport;

namespace {

std::string named(int rank) { return fmt::format("rank {}", rank); }

RankPlace standing(int rank, std::uint64_t begun, std::uint64_t ended, double still = 100) {
  return {rank, {begun, ended, 7, fmt::format("op {}", begun)}, still};
}

} // namespace

TEST_CASE("who never entered a collective is told from where the ranks stand") {
  const auto stall = [](const std::vector<RankPlace>& ranks) {
    return find_stall(ranks, 60, named).value_or("");
  };
  CHECK(
      stall({standing(0, 9, 8), standing(1, 8, 8), standing(2, 9, 8)}) ==
      "2 ranks have waited for 60 s in op 9 (collective 9), which one never entered: rank 1 is at "
      "step 7, after op 8 (collective 8)");
  CHECK(stall({standing(0, 9, 8), standing(1, 8, 8), standing(2, 7, 6)}) ==
        "1 rank has waited for 60 s in op 9 (collective 9), which 2 never entered: rank 1 is at "
        "step 7, after op 8 (collective 8); rank 2 is at step 7, in op 7 (collective 7)");
  CHECK(contains(stall({standing(0, 9, 8), standing(1, 9, 8)}), "every rank has entered it"));
  CHECK(stall({standing(0, 9, 8), standing(1, 8, 8, 59)}).empty()); // It is under way.
  CHECK(stall({standing(0, 9, 9), standing(1, 9, 9)}).empty());     // All compute.
}

TEST_CASE("a rank stands still for as long as it was told to, not since it was last heard of") {
  TrackedPlace rank;
  const auto at = [start = rank.moved](int seconds) {
    return start + std::chrono::seconds(seconds);
  };
  rank.update({.begun = 1, .ended = 0}, at(10));
  CHECK(rank.still() == 0);
  rank.update({.begun = 1, .ended = 0}, at(12));
  CHECK(rank.still() == 2);
  rank.update({.begun = 1, .ended = 1}, at(90)); // Its beats were late; it had gone on.
  CHECK(rank.still() == 0);
}

TEST_CASE("the log has the last collectives, with those that were never left") {
  const TempFolder folder;
  CollectiveLog log;
  const std::uint64_t last = CollectiveLog::k_entries + 20;
  for (std::uint64_t number = 1; number <= last; ++number) {
    log.begin(number,
              {"all_reduce", "bf16", 4096, "grad", "all_reduce 'grad' of 4096 bytes as bf16"}, 3);
    if (number < last) {
      log.end(number);
    }
  }
  CHECK(log.place(3).text() ==
        fmt::format("at step 3, in all_reduce 'grad' of 4096 bytes as bf16 (collective {})", last));
  log.write(folder / "rank-0.csv");
  const std::string text = read_file(folder / "rank-0.csv");
  CHECK(text.starts_with("number,op,bytes,wire,name,step,entered,seconds\n21,all_reduce,4096,bf16,"
                         "grad,3,20"));
  const std::string end = text.substr(text.rfind('\n', text.size() - 2) + 1);
  CHECK(end.starts_with(fmt::format("{},", last)));
  CHECK(end.ends_with("Z,\n"));
}

TEST_CASE("ranks that wait in a collective end by naming the living rank that never enters it" *
          unit::waits()) {
  struct Run {
    std::vector<std::string> thrown;
    std::string of_waiting;
    std::string of_late;
  };
  constexpr double k_time_out = 2.5 * unit::k_slowness; // In which two ranks have to enter.
  const auto run = [](Kind transport) {
    const TempFolder folder;
    CommOptions options = options_for(transport);
    options.peer_timeout = unit::time_out(2); // A beat is a quarter of it, or a second.
    options.collective_timeout = k_time_out;
    options.collective_log = folder.path();
    Run found;
    found.thrown = run_ranks(3, options, [&](Communicator& communicator) {
      std::vector<float> buffer(1000);
      communicator.set_step(4);
      communicator.barrier("begin");
      if (communicator.rank() == 2) { // Its heart beats, until the others have given up.
        unit::wait_until([&] { return std::filesystem::exists(folder / "rank-2.csv"); });
      }
      communicator.all_reduce(buffer, "grad");
    });
    found.of_waiting = read_file(folder / "rank-0.csv");
    found.of_late = read_file(folder / "rank-2.csv");
    return found;
  };
  auto beside = std::async(std::launch::async, run, Kind::tcp); // They wait at the same time.
  const Run shared = run(Kind::shared_memory);
  const Run tcp = beside.get();
  const std::string waited =
      fmt::format("2 ranks have waited for {:g} s in all_reduce 'grad' of 4000 bytes (collective "
                  "2), which one never entered: rank 2 (",
                  k_time_out);
  for (const Run* found : {&shared, &tcp}) {
    for (const std::string& text : found->thrown) {
      CAPTURE(text);
      CHECK(contains(text, waited));
      CHECK(contains(text, "is at step 4, after barrier 'begin' (collective 1)"));
    }
    CHECK(contains(found->of_waiting, "2,all_reduce,4000,fp32,grad,4,"));
    CHECK_FALSE(contains(found->of_late, "all_reduce"));
  }
}

TEST_CASE("a dead rank's last collective is named") {
  CommOptions options = options_for(Kind::tcp);
  options.peer_timeout = 5;
  const auto thrown = run_ranks(2, options, [&](Communicator& communicator) {
    communicator.barrier("begin");
    communicator.set_step(4);
    if (communicator.rank() == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(400)); // More than a beat.
      throw std::runtime_error("of its own");
    }
    communicator.barrier("end");
  });
  CHECK(contains(thrown[0], "gave up at step 4, after barrier 'begin' (collective 1)"));
}
