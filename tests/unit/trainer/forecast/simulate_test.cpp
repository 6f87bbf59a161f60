#include "trainer/forecast/simulate.h"

#include <cmath>

#include <doctest/doctest.h>

#include "trainer/errors.h"

namespace trainer {
namespace {

constexpr double k_buffer = 256e6;

/// 25 Gbit/s a host, 10 µs away; 20 GB/s and 1 µs inside.
Network network_of(int ranks, int ranks_per_host = 1) {
  return {.ranks = ranks,
          .ranks_per_host = ranks_per_host,
          .inside = {.latency = 1e-6, .bandwidth = 20e9},
          .between = {.latency = 10e-6, .bandwidth = 3.125e9}};
}

double ring_bound(int n, double bytes, double bandwidth) {
  return 2.0 * (n - 1) / n * bytes / bandwidth;
}

TEST_CASE("a ring's time is within 10 % of 2(n-1)/n S/B for 16 to 256 ranks, and flat") {
  double least = 1e9;
  double most = 0;
  for (const int n : {16, 32, 64, 128, 256}) {
    const double seconds = simulate(Schedule::ring, network_of(n), k_buffer);
    const double bound = ring_bound(n, k_buffer, 3.125e9);
    CAPTURE(n);
    CHECK(seconds >= bound * 0.9999);
    CHECK(seconds <= bound * 1.10);
    least = std::min(least, seconds);
    most = std::max(most, seconds);
  }
  CHECK(most / least < 1.15);
}

TEST_CASE("a ring whose chunks are not cut pays the latency of every step") {
  const Network network = network_of(64);
  const double uncut = simulate(Schedule::ring, network, k_buffer, {.segments = 1});
  const double expected = ring_bound(64, k_buffer, 3.125e9) + 2 * 63 * 10e-6;
  CHECK(uncut == doctest::Approx(expected).epsilon(1e-6));
}

TEST_CASE("one parameter server's time is linear in the number of workers") {
  for (const int n : {16, 32, 64, 128, 256}) {
    CAPTURE(n);
    const double seconds =
        simulate(Schedule::parameter_server, network_of(n), k_buffer, {.segments = 16});
    // A bucket's way back begins when all of its pushes are in: one bucket is not overlapped.
    const double expected = n * k_buffer / 3.125e9 * (1 + 1.0 / 16);
    CHECK(seconds == doctest::Approx(expected).epsilon(0.10));
  }
}

TEST_CASE("p parameter servers divide the time by p while the workers are more") {
  const double one = simulate(Schedule::parameter_server, network_of(64), k_buffer);
  const double eight =
      simulate(Schedule::parameter_server, network_of(64), k_buffer, {.servers = 8});
  CHECK(one / eight == doctest::Approx(8).epsilon(0.10));
}

TEST_CASE("between hosts of eight, hierarchical wins for buffers where the ring's latency counts") {
  const Network network = network_of(256, 8);
  const auto wins = [&](double bytes) {
    return simulate(Schedule::hierarchical, network, bytes) <
           simulate(Schedule::ring, network, bytes);
  };
  CHECK(wins(64e3));
  CHECK(wins(1e6));
  CHECK_FALSE(wins(64e6));
}

TEST_CASE("a tree wins only for the shortest buffers") {
  const Network network = network_of(64);
  CHECK(simulate(Schedule::tree, network, 4e3) < simulate(Schedule::ring, network, 4e3));
  CHECK(simulate(Schedule::tree, network, k_buffer) > simulate(Schedule::ring, network, k_buffer));
}

TEST_CASE("every rank of an odd world takes part in the tree") {
  // 5 ranks: 3 levels up, 3 down, each S/B and a latency, some of which overlap.
  const Network network = network_of(5);
  const double hop = 1e6 / 3.125e9 + 10e-6;
  CHECK(simulate(Schedule::tree, network, 1e6) == doctest::Approx(6 * hop).epsilon(0.03));
}

TEST_CASE("adding costs time where the core is slower than the network") {
  Network network = network_of(8);
  const double free = simulate(Schedule::ring, network, k_buffer);
  network.reduce_bandwidth = 1e9;
  CHECK(simulate(Schedule::ring, network, k_buffer) > 1.5 * free);
}

TEST_CASE("one rank has nothing to do") {
  for (const Schedule schedule :
       {Schedule::ring, Schedule::direct, Schedule::tree, Schedule::hierarchical}) {
    CHECK(simulate(schedule, network_of(1), k_buffer) == 0);
  }
}

TEST_CASE("a network that cannot be is refused") {
  CHECK_THROWS_AS(simulate(Schedule::ring, network_of(0), 1), UsageError);
  CHECK_THROWS_AS(simulate(Schedule::hierarchical, network_of(10, 4), 1), UsageError);
  CHECK_THROWS_AS(simulate(Schedule::ring, {.ranks = 2}, 1), UsageError);
}

} // namespace
} // namespace trainer
