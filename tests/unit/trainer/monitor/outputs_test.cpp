#include "trainer/monitor/outputs.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <list>
#include <optional>
#include <vector>

#include "../temp_folder.h"
#include "tests/unit/thread.h"
#include "trainer/collectives/in_process/in_process.h"
#include "trainer/errors.h"
#include "trainer/strategy/mirrored.h"

using trainer::Communicator;
using trainer::CrossDeviceOps;
using trainer::InProcessGroup;
using trainer::LogLine;
using trainer::Metrics;
using trainer::Outputs;
using trainer::Unlogged;

TEST_CASE("a line that breaks off with a rank is that of the ranks that go on") {
  std::vector<Unlogged> unlogged(2);
  {
    InProcessGroup group(3, CrossDeviceOps::shares);
    std::list<unit::Thread> survivors;
    for (int rank = 0; rank < 2; ++rank) {
      survivors.emplace_back([&, rank] {
        Metrics metrics(group.communicator(rank), unlogged.at(static_cast<std::size_t>(rank)));
        metrics.add({.loss = 2.0 * (rank + 1), .correct = rank, .count = 2}, 2);
        CHECK_THROWS_AS(metrics.line(5, 1, {}), trainer::PeerError);
      });
    }
    group.fail(2, "stopped");
    for (auto& survivor : survivors) {
      survivor.join();
    }
  }
  std::optional<LogLine> line; // Rank 0's.
  trainer::run_replicas(2, CrossDeviceOps::shares, [&](Communicator& communicator) {
    const int rank = communicator.rank();
    Metrics metrics(communicator, unlogged.at(static_cast<std::size_t>(rank)));
    const auto found = metrics.line(5, 1, {});
    CHECK_FALSE(metrics.line(5, 1, {}));
    if (rank == 0) {
      line = found;
    }
  });
  REQUIRE(line);
  CHECK(line->loss == doctest::Approx((2.0 + 4.0) / 4));
  CHECK(line->accuracy == doctest::Approx(1.0 / 4));
}

TEST_CASE("of two ranks that make up for a line at once, one writes it") {
  const TempFolder folder;
  const std::string csv = folder / "log.csv";
  constexpr int k_lines = 200;
  const trainer::OutputOptions options{.progress_bar = false, .logdir = "", .csv = csv};
  Outputs first(options, true);
  Outputs second(options, true);
  const auto write_all = [](Outputs& outputs) {
    for (int step = 1; step <= k_lines; ++step) {
      outputs.line_once({.step = step});
    }
  };
  unit::Thread other([&] { write_all(second); });
  write_all(first);
  other.join();
  const std::string text = read_file(csv);
  CHECK(std::count(text.begin(), text.end(), '\n') == k_lines + 1);
}

TEST_CASE("a line is made up for where the CSV file lacks it, whoever wrote the last one") {
  const TempFolder folder;
  const std::string csv = folder / "log.csv";
  const auto lines = [&] {
    const std::string text = read_file(csv);
    return std::count(text.begin(), text.end(), '\n');
  };
  const trainer::OutputOptions options{.progress_bar = false, .logdir = "", .csv = csv};
  {
    Outputs outputs(options, true);
    outputs.line_once(LogLine{.step = 1});
    outputs.line(LogLine{.step = 12});
    CHECK(lines() == 3);
  }
  Outputs outputs(options, true);
  outputs.line_once(LogLine{.step = 12});
  CHECK(lines() == 3);
  outputs.line_once(LogLine{.step = 13});
  CHECK(lines() == 4);
}

TEST_CASE("a run that goes on behind a step takes later lines out of the CSV file") {
  const TempFolder folder;
  const std::string csv = folder / "log.csv";
  const trainer::OutputOptions options{.progress_bar = false, .logdir = "", .csv = csv};
  {
    Outputs outputs(options, true);
    for (const std::int64_t step : {100, 200, 300}) {
      outputs.line(LogLine{.step = step});
    }
  }
  const std::string before = read_file(csv);
  Outputs outputs(options, true);
  outputs.resume_after(300);
  CHECK(read_file(csv) == before);
  outputs.resume_after(150);
  CHECK(std::count(before.begin(), before.end(), '\n') == 4);
  const std::string after = read_file(csv);
  CHECK(before.starts_with(after));
  CHECK(std::count(after.begin(), after.end(), '\n') == 2);
  outputs.resume_after(0);
  outputs.line(LogLine{.step = 100});
  CHECK(read_file(csv) == after);
}

TEST_CASE("TensorBoard gets what a line knows, and no zeros for what it does not") {
  const TempFolder folder;
  const trainer::OutputOptions options{.progress_bar = false, .logdir = folder / "logs", .csv = ""};
  const auto written = [&](const LogLine& line) {
    std::filesystem::remove_all(options.logdir);
    { Outputs(options, true).line(line); }
    return read_file(std::filesystem::directory_iterator(options.logdir)->path());
  };
  const auto has = [](const std::string& events, const char* tag) {
    return events.find(tag) != std::string::npos;
  };
  const std::string plain = written({.step = 1});
  CHECK(has(plain, "train/loss"));
  for (const char* tag : {"train/overlap", "train/learning_rate", "train/loss_scale"}) {
    CAPTURE(tag);
    CHECK_FALSE(has(plain, tag));
    CHECK(has(written({.step = 1, .overlap = 0.5, .learning_rate = 0.1, .loss_scale = 8}), tag));
  }
}
