#include "backends/support/logs/log_reader.h"

#include "../../temporary_folder.h"
#include "backends/support/logs/log_format.h"
#include "backends/support/logs/time_text.h"

#include <doctest/doctest.h>

#include <fcntl.h>

namespace dtrain {
namespace {

LogReader reader(const std::string& path, const std::string& instance) {
  return {Fd(open(path.c_str(), O_RDONLY | O_CLOEXEC)), instance};
}

std::string entries(const std::vector<std::pair<Time, std::string>>& lines) {
  std::string text;
  for (const auto& [time, line] : lines) {
    append_log_entry(text, time, false, true, line);
  }
  return text;
}

std::vector<std::string> merged(std::deque<LogReader>& readers, Time since = 0,
                                Time horizon = k_no_horizon) {
  std::vector<std::string> lines;
  bool held = false;
  merge_logs(
      readers, since, horizon,
      [&](const LogLine& line) {
        lines.push_back(std::string(line.instance) + ":" + std::string(line.text));
        return true;
      },
      held);
  return lines;
}

using Lines = std::vector<std::string>;

TEST_CASE("a log entry reads back as it was written") {
  std::string text;
  append_log_entry(text, 1'795'231'440'000'000'001, true, false, " \xff\r text ");
  const auto entry = parse_log_entry(std::string_view(text).substr(0, text.size() - 1));
  REQUIRE(entry);
  CHECK(entry->time == 1'795'231'440'000'000'001);
  CHECK(entry->is_stderr);
  CHECK(!entry->complete);
  CHECK(entry->text == " \xff\r text ");
}

TEST_CASE("what is no log entry is not taken for one") {
  CHECK(!parse_log_entry(""));
  CHECK(!parse_log_entry("2026-11-21T03:24:00.123456789Z stdout F"));
  CHECK(!parse_log_entry("2026-11-21T03:24:00.123456789Z stdin  F x"));
  CHECK(!parse_log_entry("2026-13-21T03:24:00.123456789Z stdout F x"));
  CHECK(!parse_time_text("2026-02-30T03:24:00.123456789Z"));
}

TEST_CASE("the logs of a gang come in time order, ties by rank") {
  const test::TemporaryFolder folder;
  std::deque<LogReader> readers;
  readers.push_back(reader(folder.write("a", entries({{10, "a1"}, {30, "a2"}})), "worker-0"));
  readers.push_back(
      reader(folder.write("b", entries({{10, "b1"}, {20, "b2"}, {40, "b3"}})), "worker-1"));
  CHECK(merged(readers) ==
        Lines{"worker-0:a1", "worker-1:b1", "worker-1:b2", "worker-0:a2", "worker-1:b3"});
}

TEST_CASE("entries beyond the horizon wait for the next round, older than asked are left out") {
  const test::TemporaryFolder folder;
  std::deque<LogReader> readers;
  readers.push_back(reader(folder.write("a", entries({{10, "a1"}, {20, "a2"}, {30, "a3"}})), "w"));
  CHECK(merged(readers, 15, 25) == Lines{"w:a2"});
  CHECK(merged(readers) == Lines{"w:a3"});
}

TEST_CASE("a line still being written waits until it is whole, a damaged one is left out") {
  const test::TemporaryFolder folder;
  const auto text = entries({{10, "whole"}, {20, "growing"}});
  const auto path = folder.write("a", "rubbish\n" + text.substr(0, text.size() - 4));
  std::deque<LogReader> readers;
  readers.push_back(reader(path, "w"));
  CHECK(merged(readers) == Lines{"w:whole"});
  std::ofstream(path, std::ios::app) << text.substr(text.size() - 4);
  CHECK(merged(readers) == Lines{"w:growing"});
}

TEST_CASE("tail finds the last lines, in files small and large") {
  const test::TemporaryFolder folder;
  for (const int count : {0, 1, 3, 2000}) {
    std::vector<std::pair<Time, std::string>> lines;
    for (int i = 0; i < count; ++i) {
      lines.emplace_back(i + 1, std::to_string(i));
    }
    const auto path = folder.write("a", entries(lines));
    for (const int tail : {0, 1, 2, 1999, 5000}) {
      auto one = reader(path, "w");
      one.skip_to_tail(tail);
      std::deque<LogReader> readers;
      readers.push_back(std::move(one));
      const auto found = merged(readers);
      CHECK(found.size() == static_cast<std::size_t>(std::min(count, tail)));
      if (!found.empty()) {
        CHECK(found.back() == "w:" + std::to_string(count - 1));
      }
    }
  }
}

TEST_CASE("tail of a line without its end is the line, read in one pass and in bounded memory") {
  const test::TemporaryFolder folder;
  std::string text = entries({{1, "first"}, {2, "second"}});
  const std::string part(16384, 'x');
  constexpr int k_parts = 4000;
  for (int i = 0; i < k_parts; ++i) {
    append_log_entry(text, 3 + i, false, false, part);
  }
  const auto path = folder.write("a", text);
  for (const int tail : {0, 1, 2, 3}) {
    std::deque<LogReader> readers;
    readers.push_back(reader(path, "w"));
    readers.back().skip_to_tail(tail);
    int whole = 0;
    int parts = 0;
    bool held = false;
    merge_logs(
        readers, 0, k_no_horizon,
        [&](const LogLine& line) {
          ++(line.complete ? whole : parts);
          return true;
        },
        held);
    CHECK(whole == std::min(tail, 2));
    CHECK(parts == k_parts);
  }
}

TEST_CASE("tail finds entries whose head lies across two blocks") {
  const test::TemporaryFolder folder;
  const std::string last = entries({{9, "last"}});
  // Every way in which a block's edge can cut an entry's head.
  for (std::size_t cut = 0; cut < 60; ++cut) {
    std::string text = entries({{1, "first"}, {2, "second"}});
    append_log_entry(text, 3, false, true, std::string(65536 - last.size() - cut, 'y'));
    const auto path = folder.write("a", text + last);
    std::deque<LogReader> readers;
    readers.push_back(reader(path, "w"));
    readers.back().skip_to_tail(2);
    const auto found = merged(readers);
    REQUIRE(found.size() == 2);
    CHECK(found.back() == "w:last");
  }
}

TEST_CASE("what has no newline for a MiB is left out, and what follows is read") {
  const test::TemporaryFolder folder;
  const auto path = folder.write("a", entries({{1, "a"}}) + std::string(3 << 20, 'x') + "\n" +
                                          entries({{2, "b"}}));
  std::deque<LogReader> readers;
  readers.push_back(reader(path, "w"));
  CHECK(merged(readers) == Lines{"w:a", "w:b"});
}

TEST_CASE("a second that was read before is known again, and a damaged time is not") {
  LogEntryParser parser;
  std::string text;
  append_log_entry(text, 1'795'231'440'000'000'001, false, true, "x");
  const auto line = std::string_view(text).substr(0, text.size() - 1);
  CHECK(parser.parse(line)->time == 1'795'231'440'000'000'001);
  CHECK(parser.parse(line)->time == 1'795'231'440'000'000'001);
  text.replace(20, 10, "999999999Z");
  CHECK(parser.parse(line)->time == 1'795'231'440'999'999'999);
  text.replace(20, 10, "99999999:Z");
  CHECK(!parser.parse(line));
  text.replace(20, 10, "9999999999");
  CHECK(!parser.parse(line));
  text.replace(18, 12, "1.000000000Z");
  CHECK(parser.parse(line)->time == 1'795'231'441'000'000'000);
}

} // namespace
} // namespace dtrain
