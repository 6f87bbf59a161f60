#include "backends/kubernetes/logs/log_merge.h"

#include <doctest/doctest.h>

#include <string>

using namespace dtrain;
using namespace dtrain::kubernetes;

namespace {

struct Merged {
  std::string text;
  LogMerge merge{[this](const LogLine& line) {
    text += std::string(line.instance) + ":" + std::string(line.text) + " ";
    return true;
  }};
  LogMerge::Clock::time_point start = LogMerge::Clock::now();
};

} // namespace

TEST_CASE("lines of several Pods come out in the order of their times") {
  Merged m;
  m.merge.open("a", "w-0", m.start);
  m.merge.open("b", "w-1", m.start);
  m.merge.add("a", 10, "x", m.start);
  m.merge.add("a", 30, "z", m.start);
  m.merge.flush(m.start);
  CHECK(m.text.empty()); // w-1 may still give an older line.
  m.merge.add("b", 20, "y", m.start);
  m.merge.flush(m.start);
  CHECK(m.text == "w-0:x w-1:y ");
}

TEST_CASE("a Pod that says nothing holds nobody up for long") {
  Merged m;
  m.merge.open("a", "w-0", m.start);
  m.merge.open("b", "w-1", m.start);
  m.merge.add("a", 10, "x", m.start);
  m.merge.flush(m.start + LogMerge::k_longest_silence);
  CHECK(m.text == "w-0:x ");
}

TEST_CASE("a closed Pod's lines come out, and the rest when all is over") {
  Merged m;
  m.merge.open("a", "w-0", m.start);
  m.merge.open("b", "w-1", m.start);
  m.merge.add("a", 10, "x", m.start);
  m.merge.close("b");
  m.merge.flush(m.start);
  CHECK(m.text == "w-0:x ");
  m.merge.add("a", 11, "y", m.start);
  m.merge.drain();
  CHECK(m.text == "w-0:x w-0:y ");
}

TEST_CASE("what is held is bounded") {
  Merged m;
  m.merge.open("a", "w-0", m.start);
  m.merge.open("b", "w-1", m.start);
  m.merge.add("a", 1, std::string(LogMerge::k_most_held, 'x'), m.start);
  m.merge.add("a", 2, "y", m.start);
  m.merge.flush(m.start);
  CHECK(!m.text.empty());
}

TEST_CASE("short lines are held within the bound too") {
  Merged m;
  std::size_t given = 0;
  LogMerge merge([&](const LogLine&) {
    ++given;
    return true;
  });
  merge.open("a", "w-0", m.start);
  merge.open("b", "w-1", m.start);
  constexpr std::size_t k_least = 16; // No line's record takes less.
  constexpr std::size_t k_lines = LogMerge::k_most_held / k_least;
  for (std::size_t i = 0; i < k_lines; ++i) {
    merge.add("a", 1, "x", m.start);
    if (i % 1000 == 0) {
      merge.flush(m.start);
    }
  }
  CHECK(given > 0);
}

TEST_CASE("a Pod that goes on holds up only what is later than its last line") {
  Merged m;
  m.merge.open("a", "w-0", m.start);
  m.merge.open("b", "w-1", m.start);
  m.merge.add("b", 20, "y", m.start);
  m.merge.flush(m.start + LogMerge::k_longest_silence);
  m.merge.add("b", 21, "z", m.start + LogMerge::k_longest_silence);
  m.merge.flush(m.start + LogMerge::k_longest_silence * 2);
  m.text.clear();
  m.merge.add("a", 10, "late", m.start + LogMerge::k_longest_silence * 2);
  m.merge.add("a", 30, "x", m.start + LogMerge::k_longest_silence * 2);
  m.merge.flush(m.start + LogMerge::k_longest_silence * 2 - std::chrono::milliseconds(1));
  CHECK(m.text == "w-0:late ");
}

TEST_CASE("a Pod that goes on giving old lines holds the others up for a second at most") {
  using std::chrono::milliseconds;
  constexpr Time k_late = 49'000'000'000;
  Merged m;
  m.merge.open("a", "w-0", m.start);
  m.merge.open("b", "w-1", m.start);
  m.merge.add("a", k_late, "x", m.start);
  auto now = m.start;
  for (Time old = 1; now < m.start + LogMerge::k_longest_hold; ++old, now += milliseconds(20)) {
    CHECK(m.text.find('x') == std::string::npos);
    m.merge.add("b", old, "y", now);
    m.merge.flush(now);
  }
  m.merge.add("b", 1000, "y", now);
  m.merge.flush(now);
  CHECK(m.text.ends_with("w-0:x "));
  // Now it is far behind, and waited for no more until it has caught up.
  m.merge.add("a", k_late + 2, "z", now);
  m.merge.flush(now);
  CHECK(m.text.ends_with("w-0:z "));
  m.merge.add("b", k_late + 3, "caught-up", now);
  m.merge.add("a", k_late + 5, "later", now);
  m.merge.flush(now);
  CHECK(m.text.ends_with("w-1:caught-up "));
}
