#include "backends/kubernetes/log_merge.h"

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
  m.merge.flush(m.start + LogMerge::k_patience);
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
