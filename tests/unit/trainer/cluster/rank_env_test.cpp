// The contract between launcher and program: what submit/rank_env writes, trainer/cluster reads.
#include <doctest/doctest.h>

#include <map>
#include <string>
#include <tuple>

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

TEST_CASE("a task takes the GPU that its CUDA_VISIBLE_DEVICES has at LOCAL_RANK") {
  dtrain::GangPlace gang;
  gang.ranks = {{.role = "worker", .index = 0, .host = "a", .port = 1, .gpus = {{"4"}}},
                {.role = "worker", .index = 1, .host = "a", .port = 2, .gpus = {{"6"}}},
                {.role = "ps", .index = 0, .host = "a", .port = 3},
                {.role = "evaluator", .index = 0, .host = "a", .port = 4, .gpus = {{"7"}}}};
  for (const auto& [view, place, local_rank, visible] :
       {std::tuple(dtrain::GpuView::node, 0, 0, "4,6"),
        std::tuple(dtrain::GpuView::node, 1, 1, "4,6"),
        std::tuple(dtrain::GpuView::node, 3, 0, "7"), std::tuple(dtrain::GpuView::rank, 1, 0, "6"),
        std::tuple(dtrain::GpuView::rank, 3, 0, "7")}) {
    const int rank = place; // Clang 14's lambdas cannot capture a binding.
    CAPTURE(rank);
    gang.gpu_view = view;
    std::map<std::string, std::string> vars;
    for (const auto& [key, value] : dtrain::rank_env(gang, rank)) {
      vars[key] = value;
    }
    const auto get = [&](const char* name) -> std::optional<std::string> {
      return vars.contains(name) ? std::optional(vars[name]) : std::nullopt;
    };
    CHECK(local_rank_of(parse_tf_config(vars["TF_CONFIG"]), get) == local_rank);
    CHECK(vars["CUDA_VISIBLE_DEVICES"] == visible);
  }
}

TEST_CASE("where nobody says LOCAL_RANK, a task's is its number among the ranks of its host") {
  const auto nothing = [](const char*) -> std::optional<std::string> { return std::nullopt; };
  const auto config = [](const char* task) {
    return parse_tf_config(R"({"cluster":{"worker":["a:1","b:1","b:2"],"ps":["b:3"]},"task":)" +
                           std::string(task) + "}");
  };
  CHECK(local_rank_of(config(R"({"type":"worker","index":2})"), nothing) == 1);
  CHECK(local_rank_of(config(R"({"type":"ps","index":0})"), nothing) == 0);
  CHECK(local_rank_of(config(R"({"type":"evaluator","index":0})"), nothing) == 0);
}
