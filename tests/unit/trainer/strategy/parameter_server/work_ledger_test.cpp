#include "trainer/strategy/parameter_server/work_ledger.h"

#include <set>

#include <doctest/doctest.h>

namespace trainer {
namespace {

TEST_CASE("batches are given out in order, each once, to whoever asks") {
  WorkLedger ledger(3, 2, false);
  CHECK(ledger.next(0, 0, 1) == 0);
  CHECK(ledger.next(1, 0, 1) == 1);
  CHECK(ledger.next(1, 1, 1) == 2);
  CHECK_FALSE(ledger.next(1, 2, 1));
  CHECK(ledger.done() == 2);
  CHECK_FALSE(ledger.is_finished());
  CHECK_FALSE(ledger.next(0, 3, 1));
  CHECK(ledger.is_finished());
}

TEST_CASE("what a lost worker had goes to the next that asks, and nothing is left out") {
  WorkLedger ledger(5, 3, true);
  CHECK(ledger.next(0, 0, 1) == 0);
  CHECK(ledger.next(1, 0, 1) == 1);
  CHECK(ledger.next(2, 0, 1) == 2);
  ledger.lose(1);
  ledger.lose(1); // Nothing is left to lose.
  CHECK(ledger.done() == 0);
  CHECK(ledger.next(0, 1, 1) == 1);
  CHECK(ledger.next(2, 1, 1) == 3);
  std::set<std::int64_t> rest;
  for (int worker : {0, 2, 0, 2}) {
    if (const auto batch = ledger.next(worker, 2, 1)) {
      rest.insert(*batch);
    }
  }
  CHECK(rest == std::set<std::int64_t>{4});
  CHECK(ledger.is_finished());
}

TEST_CASE("when servers go back, so does the work, once") {
  WorkLedger ledger(100, 2, true);
  for (std::int64_t version = 0; version < 10; ++version) {
    CHECK(ledger.next(0, version, 1) == 2 * version);
    CHECK(ledger.next(1, version, 1) == 2 * version + 1);
  }
  CHECK(ledger.next(1, 4, 2) == 8);
  CHECK(ledger.next(0, 4, 2) == 9);
  CHECK(ledger.next(0, 5, 2) == 10);
  CHECK(ledger.done() == 9);
}

TEST_CASE("what was done for a lost worker is done again where that was undone") {
  WorkLedger ledger(100, 2, true);
  CHECK(ledger.next(0, 0, 1) == 0);
  CHECK(ledger.next(1, 0, 1) == 1);
  ledger.lose(1);
  CHECK(ledger.next(0, 1, 1) == 1);
  CHECK(ledger.next(0, 2, 1) == 2);
  SUBCASE("from before it was given out again") {
    CHECK(ledger.next(0, 1, 2) == 1);
    CHECK(ledger.next(0, 2, 2) == 2);
  }
  SUBCASE("and from after, not") { CHECK(ledger.next(0, 2, 2) == 2); }
  CHECK(ledger.next(0, 3, 2) == 3);
}

TEST_CASE("a batch that was pushed before the servers' restart counts where its update stays") {
  WorkLedger ledger(100, 2, true);
  CHECK(ledger.next(0, 0, 1) == 0);
  CHECK(ledger.next(1, 0, 1) == 1);
  CHECK(ledger.next(0, 1, 2, false) == 2); // Not done, as far as the worker knows.
  CHECK(ledger.next(1, 1, 2, false) == 3);
}

TEST_CASE("a batch that was given out for values of before the servers' restart is not lost") {
  WorkLedger ledger(100, 2, true);
  CHECK(ledger.next(0, 0, 1) == 0);
  CHECK(ledger.next(0, 0, 2, false) == 0);
  CHECK(ledger.next(1, 0, 1) == 1); // It has not heard, and what it pushes is dropped.
  CHECK(ledger.next(1, 0, 2, false) == 1);
}

TEST_CASE("a coordinator that is new to a job begins where its servers stand") {
  WorkLedger ledger(100, 4, true);
  CHECK(ledger.next(2, 7, 1) == 28);
  CHECK(ledger.next(0, 7, 1) == 29);
}

} // namespace
} // namespace trainer
