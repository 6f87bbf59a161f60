#include "trainer/options/settings.h"

#include <doctest/doctest.h>

namespace trainer {

TEST_CASE("auto is the CPU, and says why, where what is asked has no form on a GPU") {
  Cluster cluster;
  cluster.source = "RANK";
  cluster.world_size = 2;
  TrainerOptions options;
  CHECK(rank_options(options, cluster).no_gpu == "");
  options.offload_optimizer = "cpu";
  CHECK(rank_options(options, cluster).no_gpu == "");
  options.offload_optimizer = "/fast";
  CHECK(rank_options(options, cluster).no_gpu == "");
  options.offload_param = "/fast";
  options.zero_stage = 3;
  CHECK(rank_options(options, cluster).no_gpu == "");
  options = {};
  options.min_workers = 1;
  CHECK(rank_options(options, cluster).no_gpu == "elastic workers run on CPUs only");
}

} // namespace trainer
