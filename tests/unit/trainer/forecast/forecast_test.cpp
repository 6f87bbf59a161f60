#include "trainer/forecast/forecast.h"

#include <cmath>
#include <vector>

#include <doctest/doctest.h>

#include "trainer/errors.h"

namespace trainer {
namespace {

ForecastInput input_of(int workers, double compute_seconds) {
  ForecastInput input;
  input.gradient_bytes = 100e6;
  input.compute_seconds = compute_seconds;
  input.network = {.ranks = workers, .between = {.latency = 10e-6, .bandwidth = 1e9}};
  return input;
}

TEST_CASE("the best number of servers a worker is the root of communication by computing") {
  // c = 2S/B = 0.2 s.
  for (const double compute : {0.2, 0.8, 3.2, 20.0}) {
    CAPTURE(compute);
    const ForecastInput input = input_of(64, compute);
    const double share = communication_share(input);
    CHECK(share == doctest::Approx(0.2 / (0.2 + compute)));
    CHECK(std::abs(best_servers(input) - 64 * std::sqrt(share / (1 - share))) <= 1);
  }
}

TEST_CASE("no more servers than workers are proposed, and at least one") {
  CHECK(best_servers(input_of(8, 1e-4)) == 8);
  CHECK(best_servers(input_of(8, 1e4)) == 1);
}

TEST_CASE("communication that fits behind computing costs nothing") {
  ForecastInput input = input_of(4, 10);
  input.overlap = 0.6;
  const Forecast forecast = make_forecast(input);
  CHECK(forecast.rows.front().communication_seconds > 0.1);
  CHECK(forecast.rows.front().step_seconds == doctest::Approx(10));
  CHECK(forecast.rows.front().efficiency == doctest::Approx(1));
}

TEST_CASE("a plan's parameter-server row is the formula's step within 10 %") {
  const ForecastInput input = input_of(64, 0.8);
  const Forecast forecast = make_forecast(input);
  const ForecastRow& row = forecast.rows.back();
  REQUIRE(row.carrying == Carrying::parameter_server);
  CHECK(row.servers == forecast.best_servers);
  // A push and a pull overlap all but one of four buckets: (1 + 1/4)/2 of c.
  const double expected = 0.8 + 0.625 * 0.2 * 64 / row.servers;
  CHECK(row.step_seconds == doctest::Approx(expected).epsilon(0.10));
}

TEST_CASE("a plan names what this trainer can run on such a network, its own choice first") {
  const auto names = [](const ForecastInput& input) {
    std::vector<Carrying> carryings;
    for (const ForecastRow& row : make_forecast(input).rows) {
      if (row.servers == 0) {
        carryings.push_back(row.carrying);
      }
    }
    return carryings;
  };
  ForecastInput input = input_of(16, 0.1);
  CHECK(names(input) == std::vector{Carrying::ring});
  input.gradient_bytes = 8 << 10;
  CHECK(names(input) == std::vector{Carrying::direct}); // As tcp/ring.h has it.
  input.gradient_bytes = 100e6;
  input.network.ranks_per_host = 8;
  input.network.inside = {.latency = 1e-6, .bandwidth = 20e9};
  CHECK(names(input) == std::vector{Carrying::hierarchical, Carrying::ring});
  CHECK(forecast_text(make_forecast(input)).find("best a machine") != std::string::npos);
  CHECK(forecast_text(make_forecast(input)).find("tree") == std::string::npos);
  input.network.ranks = 8;
  CHECK(names(input) == std::vector{Carrying::shared_memory, Carrying::ring});
}

TEST_CASE("a ring's time is its bandwidth's, and its latency's where chunks are short") {
  const Network network{.ranks = 64, .between = {.latency = 10e-6, .bandwidth = 3.125e9}};
  const double bound = 2.0 * 63 / 64 * 256e6 / 3.125e9;
  CHECK(seconds_of(Carrying::ring, network, 256e6) == doctest::Approx(bound).epsilon(0.01));
  CHECK(seconds_of(Carrying::ring, network, 64e3) > 126 * 10e-6);
}

TEST_CASE("p parameter servers divide the time by p while the workers are more") {
  const Network network{.ranks = 64, .between = {.latency = 10e-6, .bandwidth = 3.125e9}};
  const double one = seconds_of(Carrying::parameter_server, network, 256e6, 1);
  CHECK(one / seconds_of(Carrying::parameter_server, network, 256e6, 8) ==
        doctest::Approx(8).epsilon(0.01));
  CHECK(seconds_of(Carrying::parameter_server, network, 256e6, 128) ==
        doctest::Approx(one / 64).epsilon(0.01)); // Their own links are the bottleneck.
}

TEST_CASE("a plan from nothing is refused") {
  CHECK_THROWS_AS(make_forecast({}), UsageError);
  ForecastInput input = input_of(4, 1);
  input.overlap = 2;
  CHECK_THROWS_AS(make_forecast(input), UsageError);
}

} // namespace
} // namespace trainer
