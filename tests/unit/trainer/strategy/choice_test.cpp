#include "trainer/strategy/choice.h"

#include <doctest/doctest.h>

#include "trainer/errors.h"

using namespace trainer;

namespace {

const JobShape k_alone = {};
const JobShape k_one_worker = {.source = "TF_CONFIG"};
const JobShape k_workers = {.source = "RANK", .workers = 3};
const JobShape k_elastic = {.source = "TF_CONFIG", .is_elastic = true};
const JobShape k_servers = {.source = "TF_CONFIG", .workers = 3, .servers = 2};

} // namespace

TEST_CASE("the strategy follows from what the cluster variables name") {
  CHECK(choose_strategy("auto", k_alone) == Strategy::mirrored);
  CHECK(choose_strategy("auto", k_one_worker) == Strategy::multi_worker);
  CHECK(choose_strategy("auto", k_workers) == Strategy::multi_worker);
  CHECK(choose_strategy("auto", k_elastic) == Strategy::multi_worker);
  CHECK(choose_strategy("auto", k_servers) == Strategy::parameter_server);
}

TEST_CASE("a strategy that fits the cluster may be named") {
  CHECK(choose_strategy("mirrored", k_alone) == Strategy::mirrored);
  CHECK(choose_strategy("mirrored", k_one_worker) == Strategy::mirrored);
  CHECK(choose_strategy("multi-worker", k_one_worker) == Strategy::multi_worker);
  CHECK(choose_strategy("multi-worker", k_elastic) == Strategy::multi_worker);
  CHECK(choose_strategy("parameter-server", k_servers) == Strategy::parameter_server);
}

TEST_CASE("a strategy that contradicts the cluster is refused, and both are named") {
  const auto refused = [](const char* asked, const JobShape& job, const char* message) {
    CHECK_THROWS_WITH_AS(choose_strategy(asked, job), message, UsageError);
  };
  refused("mirrored", k_workers,
          "--strategy=mirrored: trains one process, and RANK names 3 workers; use auto or "
          "multi-worker");
  refused("mirrored", k_elastic,
          "--strategy=mirrored: trains one process, and TF_CONFIG names 1 worker that may come "
          "and go; use auto or multi-worker");
  refused("mirrored", k_servers,
          "--strategy=mirrored: trains one process, and TF_CONFIG names 3 workers and 2 parameter "
          "servers; use auto or parameter-server");
  refused("multi-worker", k_servers,
          "--strategy=multi-worker: trains workers that sum their gradients among themselves, and "
          "TF_CONFIG names 3 workers and 2 parameter servers; use auto or parameter-server");
  refused("multi-worker", k_alone,
          "--strategy=multi-worker: trains workers that sum their gradients among themselves, and "
          "this is one process, with no cluster variables; use auto or mirrored");
  refused("parameter-server", k_workers,
          "--strategy=parameter-server: needs parameter servers, cluster.ps in TF_CONFIG, and RANK "
          "names 3 workers; use auto or multi-worker");
}
