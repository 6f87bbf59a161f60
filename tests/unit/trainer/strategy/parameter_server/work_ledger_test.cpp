#include "trainer/strategy/parameter_server/work_ledger.h"

#include <set>

#include <doctest/doctest.h>

namespace trainer {
namespace {

TEST_CASE("batches are given out in order, each once, to whoever asks") {
  WorkLedger ledger(3, 2, false);
  CHECK(ledger.next(0, 0, false) == 0);
  CHECK(ledger.next(1, 0, false) == 1);
  CHECK(ledger.next(1, 1, false) == 2);
  CHECK_FALSE(ledger.next(1, 2, false));
  CHECK(ledger.done() == 2);
  CHECK_FALSE(ledger.is_finished());
  CHECK_FALSE(ledger.next(0, 3, false));
  CHECK(ledger.is_finished());
}

TEST_CASE("what a lost worker had goes to the next that asks, and nothing is left out") {
  WorkLedger ledger(5, 3, true);
  CHECK(ledger.next(0, 0, false) == 0);
  CHECK(ledger.next(1, 0, false) == 1);
  CHECK(ledger.next(2, 0, false) == 2);
  ledger.lose(1);
  ledger.lose(1); // Nothing is left to lose.
  CHECK(ledger.done() == 0);
  CHECK(ledger.next(0, 1, false) == 1);
  CHECK(ledger.next(2, 1, false) == 3);
  std::set<std::int64_t> rest;
  for (int worker : {0, 2, 0, 2}) {
    if (const auto batch = ledger.next(worker, 2, false)) {
      rest.insert(*batch);
    }
  }
  CHECK(rest == std::set<std::int64_t>{4});
  CHECK(ledger.is_finished());
}

TEST_CASE("when servers go back, so does the work, once") {
  WorkLedger ledger(100, 2, true);
  for (std::int64_t version = 0; version < 10; ++version) {
    CHECK(ledger.next(0, version, false) == 2 * version);
    CHECK(ledger.next(1, version, false) == 2 * version + 1);
  }
  CHECK(ledger.next(1, 4, true) == 8);
  CHECK(ledger.next(0, 4, true) == 9);
  CHECK(ledger.next(0, 5, false) == 10);
  CHECK(ledger.done() == 9);
}

TEST_CASE("a coordinator that is new to a job begins where its servers stand") {
  WorkLedger ledger(100, 4, true);
  CHECK(ledger.next(2, 7, false) == 28);
  CHECK(ledger.next(0, 7, false) == 29);
}

} // namespace
} // namespace trainer
