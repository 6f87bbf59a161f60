#include "backends/support/logs/log_file.h"

#include "../../temporary_folder.h"
#include "backends/support/logs/log_reader.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

namespace dtrain {
namespace {

struct LogFixture {
  test::TemporaryFolder folder;
  std::string path = folder / "worker-0.0.log";
  LogFile log{Fd(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600))};

  std::string text() const { return test::read_text(path); }
};

TEST_CASE_FIXTURE(LogFixture, "a log line is what Kubernetes would have written") {
  log.write(Stream::out, "hello\n", 1'795'231'440 * k_second + 123'456'789);
  CHECK(text() == "2026-11-21T03:24:00.123456789Z stdout F hello\n");
}

TEST_CASE_FIXTURE(LogFixture, "lines cut by a read come out whole, empty ones too") {
  log.write(Stream::err, "one\n\ntw", k_second);
  log.write(Stream::err, "o\n", 2 * k_second);
  CHECK(text() == "1970-01-01T00:00:01.000000000Z stderr F one\n"
                  "1970-01-01T00:00:01.000000000Z stderr F \n"
                  "1970-01-01T00:00:02.000000000Z stderr F two\n");
}

TEST_CASE_FIXTURE(LogFixture, "a line without an end shows as a part, and its rest ends it") {
  log.write(Stream::out, "50 %", k_second);
  CHECK(text().empty());
  CHECK(log.has_partial());
  log.flush_partial(2 * k_second);
  log.write(Stream::out, " 100 %\n", 3 * k_second);
  CHECK(text() == "1970-01-01T00:00:02.000000000Z stdout P 50 %\n"
                  "1970-01-01T00:00:03.000000000Z stdout F  100 %\n");
}

TEST_CASE_FIXTURE(LogFixture, "the end of a stream ends its last line") {
  log.write(Stream::out, "no newline", k_second);
  log.finish(k_second);
  CHECK(text() == "1970-01-01T00:00:01.000000000Z stdout F no newline\n");
}

TEST_CASE_FIXTURE(LogFixture, "times never go back, whatever the clock does") {
  log.write(Stream::out, "a\n", 5 * k_second);
  log.write(Stream::out, "b\n", 3 * k_second);
  CHECK(text().find("00:00:05.000000000Z stdout F b") != std::string::npos);
}

TEST_CASE_FIXTURE(LogFixture, "the last 20 lines of stderr are kept, an unfinished one too") {
  for (int i = 0; i < 30; ++i) {
    log.write(Stream::err, "line " + std::to_string(i) + "\n", k_second);
    log.write(Stream::out, "not this\n", k_second);
  }
  log.write(Stream::err, "Segmen", k_second);
  log.flush_partial(k_second);
  log.write(Stream::err, "tation", k_second);
  const auto last = log.last_stderr();
  REQUIRE(last.size() == LogFile::k_last_lines);
  CHECK(last.front() == "line 11");
  CHECK(last.back() == "Segmentation");
}

TEST_CASE_FIXTURE(LogFixture, "a full disk leaves whole entries and then says what is missing") {
  // A limit of file size fails as a full disk does: a short write, then an error.
  log.write(Stream::out, "first\n", k_second);
  const auto whole = text();
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  auto* const handler = signal(SIGXFSZ, SIG_IGN);
  const rlimit small{whole.size() + 10, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  log.write(Stream::out, "lost\nlost too\n", k_second);
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, handler);
  CHECK(log.first_error() == EFBIG);
  CHECK(text() == whole);
  log.write(Stream::out, "again\n", k_second);
  CHECK(text() == whole + "1970-01-01T00:00:01.000000000Z stderr F dtrain: 2 log lines were lost "
                          "here: File too large\n1970-01-01T00:00:01.000000000Z stdout F again\n");
}

TEST_CASE_FIXTURE(LogFixture, "a full disk takes back the begin of a line whose rest it lost") {
  log.write(Stream::out, "whole\n", k_second);
  const auto whole = text();
  log.write(Stream::out, "half", k_second);
  log.flush_partial(k_second);
  CHECK(text() != whole);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  auto* const handler = signal(SIGXFSZ, SIG_IGN);
  const rlimit small{text().size(), before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  log.write(Stream::out, " of a line, and more", k_second);
  log.flush_partial(k_second);
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, handler);
  CHECK(text() == whole);
  // The rest of it, which comes when there is room again, would be half a line too.
  log.write(Stream::out, " to come\nnext\n", k_second);
  CHECK(text().find("to come") == std::string::npos);
  CHECK(text().ends_with("stdout F next\n"));
}

TEST_CASE("a log with a limit drops its oldest lines, and says so to who reads it") {
  const test::TemporaryFolder folder;
  const auto path = folder / "log";
  constexpr std::int64_t k_limit = 256 * 1024;
  LogFile log(Fd(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600)), k_limit);
  LogReader early(Fd(open(path.c_str(), O_RDONLY | O_CLOEXEC)), "w");
  const auto write = [&](int from, int to) {
    for (int i = from; i < to; ++i) {
      log.write(Stream::out, fmt::format("{}\n", i), k_second + i);
    }
  };
  write(0, 10);
  CHECK(early.peek()->text == "0");
  write(10, 50'000);
  struct stat info {};
  stat(path.c_str(), &info);
  CHECK(info.st_blocks * 512 <= k_limit + 8192);
  CHECK(info.st_blocks * 512 > k_limit / 2);
  CHECK(info.st_size > 2'000'000);

  const auto read_all = [](LogReader& reader) {
    std::vector<std::string> lines;
    for (const auto* line = reader.peek(); line != nullptr; line = reader.peek()) {
      lines.emplace_back(line->text);
      reader.next();
    }
    return lines;
  };
  LogReader late(Fd(open(path.c_str(), O_RDONLY | O_CLOEXEC)), "w");
  auto lines = read_all(late);
  CHECK(lines.front().starts_with("dtrain: the first 2."));
  CHECK(lines.front().ends_with(" MB of this log were dropped (--log-limit)"));
  lines.erase(lines.begin());
  REQUIRE(lines.size() > 1000);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    REQUIRE(lines[i] == std::to_string(50'000 - lines.size() + i)); // Whole lines, none twice.
  }
  // Who was reading meanwhile goes on behind the hole.
  auto seen = read_all(early);
  CHECK(seen.front() == "0");
  CHECK(seen.back() == "49999");
  // Those asked for are there: nothing to say.
  LogReader tail(Fd(open(path.c_str(), O_RDONLY | O_CLOEXEC)), "w");
  tail.skip_to_tail(3);
  CHECK(read_all(tail) == std::vector<std::string>{"49997", "49998", "49999"});
  LogReader most(Fd(open(path.c_str(), O_RDONLY | O_CLOEXEC)), "w");
  most.skip_to_tail(40'000);
  CHECK(read_all(most).size() == lines.size() + 1);
}

TEST_CASE("a log that is gone on with keeps to its limit") {
  const test::TemporaryFolder folder;
  const auto path = folder / "log";
  constexpr std::int64_t k_limit = 65536;
  for (int run = 0; run < 5; ++run) {
    LogFile log(Fd(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600)), k_limit);
    for (int i = 0; i < 1500; ++i) {
      log.write(Stream::out, "some line\n", k_second);
    }
    struct stat info {};
    stat(path.c_str(), &info);
    CHECK(info.st_blocks * 512 <= k_limit + 8192);
  }
}

} // namespace
} // namespace dtrain
