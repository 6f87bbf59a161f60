// The contract between launcher and program: what submit/rank_env writes, trainer/cluster reads.
#include <doctest/doctest.h>

#include "submit/rank_env.h"
#include "trainer/cluster/cluster.h"

using namespace trainer;

TEST_CASE("a rank finds in its environment the place that the launcher gave it") {
  dtrain::GangPlace gang;
  gang.job_name = "mnist";
  gang.job_token = "secret";
  gang.master_addr = "node-a";
  gang.master_port = 4000;
  gang.ranks = {
      {"chief", 0, "node-a", 4001}, {"worker", 0, "node-a", 4002}, {"worker", 1, "node-b", 4003}};
  for (int rank = 0; rank < 3; ++rank) {
    CAPTURE(rank);
    const dtrain::EnvVars vars = dtrain::rank_env(gang, rank);
    const Cluster cluster = cluster_from_env([&](const char* name) -> std::optional<std::string> {
      for (const auto& [key, value] : vars) {
        if (key == name) {
          return value;
        }
      }
      return std::nullopt;
    });
    CHECK(cluster.source == "TF_CONFIG");
    CHECK(cluster.rank == rank);
    CHECK(cluster.world_size == 3);
    CHECK(cluster.local_rank == (rank == 1 ? 1 : 0));
    CHECK(cluster.local_world_size == (rank == 2 ? 1 : 2));
    CHECK(cluster.node_rank == (rank == 2 ? 1 : 0));
    CHECK(cluster.master_addr == "node-a");
    CHECK(cluster.master_port == 4000);
    CHECK(cluster.job_token == "secret");
  }
}
