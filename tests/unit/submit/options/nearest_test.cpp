#include "submit/options/nearest.h"

#include <doctest/doctest.h>

using namespace dtrain;

TEST_CASE("nearest finds slips and leaves other words alone") {
  const std::vector<std::string> known = {"submit", "get", "list", "logs", "delete", "wait"};
  CHECK(nearest("sumbit", known) == "submit");
  CHECK(nearest("delte", known) == "delete");
  CHECK(nearest("gte", known) == "get");
  CHECK(nearest("del", known) == "delete");
  CHECK_FALSE(nearest("x", known));
  CHECK_FALSE(nearest("kubernetes", known));
  CHECK_FALSE(nearest("", known));
}
