#include "trainer/strategy/parameter_server/protocol.h"

#include <doctest/doctest.h>

#include <functional>
#include <limits>
#include <string>

using namespace trainer;

namespace {

WorkerHello hello() {
  WorkerHello hello;
  hello.worker = 1;
  hello.workers = 2;
  hello.server = 2;
  hello.servers = 3;
  hello.arena = 1 << 16;
  return hello;
}

/// What check() says of the hello that was changed so.
std::string refused(const std::function<void(WorkerHello&)>& change) {
  WorkerHello changed = hello();
  change(changed);
  try {
    check(changed);
  } catch (const LinkError& error) {
    return error.what();
  }
  return "accepted";
}

} // namespace

TEST_CASE("a hello with numbers that cannot be is refused") {
  CHECK(refused([](WorkerHello&) {}) == "accepted");
  for (const std::int64_t wrong : {std::numeric_limits<std::int64_t>::min(), std::int64_t{-1},
                                   std::int64_t{4711}, std::numeric_limits<std::int64_t>::max()}) {
    CAPTURE(wrong);
    CHECK(refused([&](WorkerHello& h) { h.worker = wrong; }) ==
          "its hello has an impossible worker");
    CHECK(refused([&](WorkerHello& h) { h.server = wrong; }) ==
          "its hello has an impossible server");
    CHECK(refused([&](WorkerHello& h) { h.policy.backup_workers = wrong; }) ==
          "its hello has an impossible policy");
    CHECK(refused([&](WorkerHello& h) { h.settings.wire = wrong; }) ==
          "its hello has an impossible type of gradients");
    CHECK(refused([&](WorkerHello& h) {
            h.settings.learning_rate.schedule = static_cast<LearningRate::Schedule>(wrong);
          }) == "its hello has an impossible learning rate schedule");
  }
  for (const std::int64_t wrong : {std::numeric_limits<std::int64_t>::min(), std::int64_t{0},
                                   std::numeric_limits<std::int64_t>::max()}) {
    CHECK(refused([&](WorkerHello& h) { h.workers = wrong; }) ==
          "its hello has an impossible worker");
    CHECK(refused([&](WorkerHello& h) { h.servers = wrong; }) ==
          "its hello has an impossible server");
  }
}

TEST_CASE("a hello that asks for more than the machine has, or whose text has no end, is refused") {
  CHECK(refused([](WorkerHello& h) { h.arena = std::uint64_t{1} << 40; }) ==
        "its hello has an impossible arena");
  CHECK(refused([](WorkerHello& h) { h.settings.model.fill('x'); }) ==
        "its hello has an impossible model");
  CHECK(refused([](WorkerHello& h) { h.settings.kernels.fill('x'); }) ==
        "its hello has an impossible model");
}

TEST_CASE("servers hold each parameter once, and equal parts of what backward finishes first") {
  WorkerHello one = hello();
  std::vector<int> holders(one.arena);
  for (one.server = 0; one.server < one.servers; ++one.server) {
    std::size_t early = 0;
    for (const ArenaRange& range : one.ranges()) {
      for (std::size_t at = range.first; at < range.last; ++at) {
        ++holders[at];
        early += at < one.arena / 2 ? 1 : 0;
      }
    }
    CHECK(early == doctest::Approx(static_cast<double>(one.arena) / 6).epsilon(0.01));
  }
  CHECK(holders == std::vector<int>(one.arena, 1));
}

TEST_CASE("what two workers' jobs differ in is named by its flag") {
  const auto differs = [](const std::function<void(WorkerHello&)>& change) {
    WorkerHello other = hello();
    other.worker = 0; // As each has its own.
    change(other);
    return difference(hello(), other);
  };
  CHECK(differs([](WorkerHello&) {}).empty());
  CHECK(differs([](WorkerHello& h) { h.policy.sync = 0; }) == "--update is sync and async");
  CHECK(differs([](WorkerHello& h) { h.settings.seed = 8; }) == "--seed is 0 and 8");
  CHECK(differs([](WorkerHello& h) { h.settings.clip_norm = 1; }).find("--clip-norm") !=
        std::string::npos);
  CHECK(differs([](WorkerHello& h) { h.workers = 3; }) == "the number of workers is 2 and 3");
}
