#include "backends/support/logs/time_text.h"

#include <doctest/doctest.h>

#include <string>

using namespace dtrain;

TEST_CASE("a time is written with nanoseconds and read back") {
  CHECK(time_text(0) == "");
  CHECK(parse_time_text("") == 0);
  for (const char* text : {"1970-01-01T00:00:00.000000001Z", "2026-11-21T03:24:00.123456789Z",
                           "2261-12-31T23:59:59.999999999Z"}) {
    const auto time = parse_time_text(text);
    REQUIRE(time.has_value());
    CHECK(time_text(*time) == text);
  }
}

TEST_CASE("what is no time, or one that nanoseconds in 64 bits do not hold, is refused") {
  for (const char* text :
       {"2026-11-21T03:24:00Z", "2026-13-21T03:24:00.123456789Z", "2026-02-29T03:24:00.123456789Z",
        "2026-11-21T24:24:00.123456789Z", "2026-11-21 03:24:00.123456789Z",
        "0226-11-21T03:24:00.123456789Z", "9999-12-31T23:59:59.999999999Z"}) {
    CAPTURE(text);
    CHECK_FALSE(parse_time_text(text).has_value());
  }
}
