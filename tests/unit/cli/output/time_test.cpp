#include "cli/output/time.h"
#include "submit/errors.h"

#include <doctest/doctest.h>

using namespace dtrain;

namespace {

constexpr Time k_hour = 3600; ///< In seconds.
constexpr Time k_day = 24 * k_hour;

} // namespace

TEST_CASE("durations are written as kubectl writes ages") {
  const auto text = [](Time seconds) { return human_duration(seconds * k_second); };
  CHECK(text(-5) == "0s");
  CHECK(text(0) == "0s");
  CHECK(text(119) == "119s");
  CHECK(text(125) == "2m5s");
  CHECK(text(600) == "10m");
  CHECK(text(3 * k_hour + 720) == "3h12m");
  CHECK(text(4 * k_hour) == "4h");
  CHECK(text(30 * k_hour) == "30h");
  CHECK(text(50 * k_hour) == "2d2h");
  CHECK(text(20 * k_day) == "20d");
  CHECK(text(3 * (k_day * 365)) == "3y");
}

TEST_CASE("--since takes a duration before now or a time") {
  constexpr Time k_now = 1'000'000 * k_second;
  const auto before = [&](const char* text) {
    return (k_now - parse_since("--since", text, k_now)) / k_second;
  };
  CHECK(before("90") == 90);
  CHECK(before("5m") == 300);
  CHECK(before("1h30m") == 5400);
  CHECK(before("2d") == 172800);
  CHECK(before("1.5h") == 5400);
  CHECK(parse_since("--since", "2021-02-22T17:26:29Z", k_now) == 1614014789 * k_second);
  CHECK(parse_since("--since", "2021-02-22T17:26:29.5+01:00", k_now) ==
        (1614014789 - 3600) * k_second + k_second / 2);
}

TEST_CASE("a time that is none is refused with the flag's name and both forms") {
  for (const char* text : {"", "5x", "-5m", "m", "yesterday", "2021-02-30", "2021-13-01T00:00:00Z",
                           "2021-02-22T17:26:29", "1e99d", "5m!", "inf", "nan"}) {
    CAPTURE(text);
    CHECK_THROWS_AS(parse_since("--since", text, 0), UsageError);
  }
  CHECK_THROWS_WITH(parse_duration("--timeout", "x"),
                    "--timeout: 'x' is not a duration; write 90s, 5m, 1h30m or 2d");
}

TEST_CASE("UTC times have microseconds") {
  CHECK(utc_time(1614014789 * k_second + 1'234'567) == "2021-02-22T17:26:29.001234Z");
  CHECK(local_time(0).empty());
}
