#include <doctest/doctest.h>

#include <atomic>
#include <cstring>

#include <fmt/format.h>

#include "../collectives/ranks.h"
#include "tests/unit/waiting.h"
#include "trainer/errors.h"

using namespace trainer;
using namespace trainer::test;

namespace {

CommOptions waiting(double seconds) {
  CommOptions options;
  options.rendezvous_timeout = seconds;
  options.peer_timeout = unit::time_out(1);
  return options;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::function<void()> joins(Cluster cluster, CommOptions options) {
  return [=] { connect(cluster, options)->barrier("met"); };
}

/// Dials once rank 0 listens.
Fd dial_when_open(int port) {
  const Address address = resolve("127.0.0.1", port).front();
  Fd link;
  unit::wait_until([&] {
    try {
      link = dial(address, after_seconds(5));
      return true;
    } catch (const LinkError&) {
      return false;
    }
  });
  return link;
}

} // namespace

TEST_CASE("garbage, silence and half-open connections at the port keep nobody from meeting") {
  const HeldPort port;
  std::vector<Fd> strangers;
  std::atomic<bool> are_there{false};
  const auto thrown =
      run_threads({joins(cluster_of(0, 3, port.number()), waiting(20)),
                   [&] {
                     for (int i = 0; i < 20; ++i) {
                       strangers.push_back(dial_when_open(port.number()));
                     }
                     const std::string noise(4096, '\xff');
                     const std::string almost = "dtrain\r\n" + std::string(400, '\0');
                     for (std::size_t i = 0; i < 10; ++i) {
                       const std::string& text = i % 2 == 0 ? noise : almost;
                       send_all(strangers[i], std::as_bytes(std::span(text)).subspan(0, i * 40),
                                after_seconds(5));
                     }
                     strangers.resize(18);
                     are_there = true;
                   },
                   [&] {
                     unit::wait_until([&] { return are_there.load(); });
                     joins(cluster_of(1, 3, port.number()), waiting(20))();
                   },
                   [&] {
                     unit::wait_until([&] { return are_there.load(); });
                     joins(cluster_of(2, 3, port.number()), waiting(20))();
                   }});
  for (const std::string& text : thrown) {
    CHECK(text == "");
  }
}

TEST_CASE("ranks that do not come are listed at the time-out, also to those that came" *
          unit::waits()) {
  const HeldPort port;
  const CommOptions options = waiting(unit::time_out(0.5)); // In which two of four have to come.
  const auto thrown = run_threads({joins(cluster_of(0, 4, port.number()), options),
                                   joins(cluster_of(2, 4, port.number()), options)});
  for (const std::string& text : thrown) {
    CAPTURE(text);
    CHECK(contains(text, "ranks 1, 3 of 4 did not come"));
  }
}

TEST_CASE("a rank that finds no rank 0 says where it looked") {
  const HeldPort port;
  const auto thrown = run_threads({joins(cluster_of(1, 2, port.number()), waiting(0.3))});
  CHECK(contains(thrown[0], fmt::format("rank 0 at 127.0.0.1:{}", port.number())));
  CHECK(contains(thrown[0], "refused"));
}

TEST_CASE("a master whose name is not known is looked for until the time-out") {
  std::vector<std::function<void()>> bodies;
  for (const int rank : {0, 1}) {
    Cluster cluster = cluster_of(rank, 2, 1);
    cluster.master_addr = "nowhere.invalid";
    bodies.push_back(joins(cluster, waiting(0.7)));
  }
  const auto begin = Clock::now();
  for (const std::string& thrown : run_threads(bodies)) {
    CHECK(contains(thrown, "MASTER_ADDR 'nowhere.invalid' has no address"));
  }
  CHECK(-seconds_until(begin) > 0.4);
}

TEST_CASE("a rank with another token is refused, and both sides say so" * unit::waits()) {
  const HeldPort port;
  Cluster other = cluster_of(1, 2, port.number());
  other.job_token = "another job's";
  const auto thrown =
      run_threads({joins(cluster_of(0, 2, port.number()), waiting(unit::time_out(0.5))),
                   joins(other, waiting(20))});
  CAPTURE(thrown[0]);
  CAPTURE(thrown[1]);
  CHECK(contains(thrown[0], "rank 1 of 2 did not come"));
  CHECK(contains(thrown[0], "the job token differs"));
  CHECK(contains(thrown[1], "the job token differs"));
}

TEST_CASE("a rank of another world size is named on every rank") {
  const HeldPort port;
  const auto thrown = run_threads({joins(cluster_of(0, 2, port.number()), waiting(20)),
                                   joins(cluster_of(1, 3, port.number()), waiting(20))});
  for (const std::string& text : thrown) {
    CAPTURE(text);
    CHECK(contains(text, "rank 1 ("));
    CHECK(contains(text, "WORLD_SIZE 3, rank 0 has 2"));
  }
}

TEST_CASE("a rank that is there twice ends the meeting with both named") {
  const HeldPort port;
  const auto thrown = run_threads({joins(cluster_of(0, 3, port.number()), waiting(20)),
                                   joins(cluster_of(1, 3, port.number()), waiting(20)),
                                   joins(cluster_of(1, 3, port.number()), waiting(20))});
  for (const std::string& text : thrown) {
    CAPTURE(text);
    CHECK(contains(text, "two processes are rank 1"));
  }
}

TEST_CASE("ranks meet without a token, of which rank 0 warns, and by the name localhost") {
  const HeldPort port;
  std::vector<std::string> warnings; // Rank 0's.
  CommOptions options = waiting(20);
  options.notice_after = 20;
  options.notice = [&](const std::string& text) { warnings.push_back(text); };
  std::vector<std::function<void()>> bodies;
  for (int rank = 0; rank < 2; ++rank) {
    Cluster cluster = cluster_of(rank, 2, port.number());
    cluster.job_token.clear();
    cluster.master_addr = "localhost";
    bodies.push_back(joins(cluster, rank == 0 ? options : waiting(20)));
  }
  for (const std::string& text : run_threads(bodies)) {
    CHECK(text == "");
  }
  REQUIRE(warnings.size() == 1);
  CHECK(contains(warnings[0], "this job has no token"));
}

TEST_CASE("a world without a master address is a usage error") {
  Cluster cluster = cluster_of(1, 2, 0);
  CHECK_THROWS_AS(connect(cluster, waiting(1)), ClusterError);
}

TEST_CASE("while it waits for long a rank says for whom" * unit::waits()) {
  constexpr double k_time_out = 2.0 * unit::k_slowness; // In which nobody has to come.
  const test::HeldPort port;
  std::vector<std::vector<std::string>> notices(2);
  std::vector<std::function<void()>> bodies;
  for (const int rank : {0, 2}) {
    bodies.emplace_back([&, rank] {
      CommOptions options;
      options.rendezvous_timeout = k_time_out;
      options.notice_after = 0.4 * k_time_out; // The next would come after twice as long again.
      options.notice = [&](const std::string& text) { notices[rank == 0 ? 0 : 1].push_back(text); };
      // Rank 2 asks at a port where nobody listens.
      const test::HeldPort other;
      (void)connect(test::cluster_of(rank, 3, rank == 0 ? port.number() : other.number()), options);
    });
  }
  for (const auto& text : test::run_threads(bodies)) {
    CHECK(text.find(fmt::format("waited {:g} s", k_time_out)) != std::string::npos);
  }
  REQUIRE(notices[0].size() == 1);
  CHECK(notices[0][0].find("still waiting for ranks 1, 2 of 3 at 127.0.0.1:") == 0);
  REQUIRE(notices[1].size() == 1);
  CHECK(notices[1][0].find("still waiting for rank 0 at 127.0.0.1:") == 0);
  CHECK(notices[1][0].find("Connection refused") != std::string::npos);
}
