#include "submit/rank_env.h"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <map>

using namespace dtrain;

namespace {

/// Two nodes, the first with two ranks.
GangPlace gang() {
  GangPlace gang;
  gang.job_name = "mnist";
  gang.namespace_name = "team";
  gang.job_uid = "uid-1";
  gang.job_token = "secret";
  gang.restart_count = 2;
  gang.max_restarts = 5;
  gang.master_addr = "node-a";
  gang.master_port = 4000;
  gang.hostfile_path = "/run/hosts";
  gang.ranks = {{.index = 0, .host = "node-a", .port = 5000},
                {.index = 1, .host = "node-a", .port = 5001},
                {.index = 2, .host = "node-b", .port = 5000}};
  return gang;
}

std::map<std::string, std::string> vars(const GangPlace& place, int rank) {
  std::map<std::string, std::string> map;
  for (const auto& [key, value] : rank_env(place, rank)) {
    CHECK(map.emplace(key, value).second); // each once
  }
  return map;
}

} // namespace

TEST_CASE("each rank is told its place in the world and on its node") {
  auto env = vars(gang(), 2);
  CHECK(env["RANK"] == "2");
  CHECK(env["WORLD_SIZE"] == "3");
  CHECK(env["LOCAL_RANK"] == "0");
  CHECK(env["LOCAL_WORLD_SIZE"] == "1");
  CHECK(env["NODE_RANK"] == "1");
  CHECK(env["GROUP_RANK"] == "1");
  CHECK(env["GROUP_WORLD_SIZE"] == "2");
  CHECK(env["MASTER_ADDR"] == "node-a");
  CHECK(env["MASTER_PORT"] == "4000");
  env = vars(gang(), 1);
  CHECK(env["LOCAL_RANK"] == "1");
  CHECK(env["LOCAL_WORLD_SIZE"] == "2");
  CHECK(env["NODE_RANK"] == "0");
}

TEST_CASE("the job's own variables, torchrun's and the host file's are there") {
  auto env = vars(gang(), 0);
  CHECK(env["DTRAIN_JOB_NAME"] == "mnist");
  CHECK(env["DTRAIN_JOB_NAMESPACE"] == "team");
  CHECK(env["DTRAIN_JOB_UID"] == "uid-1");
  CHECK(env["DTRAIN_JOB_TOKEN"] == "secret");
  CHECK(env["DTRAIN_RESTART_COUNT"] == "2");
  CHECK(env["TORCHELASTIC_RESTART_COUNT"] == "2");
  CHECK(env["TORCHELASTIC_MAX_RESTARTS"] == "5");
  CHECK(env["TORCHELASTIC_RUN_ID"] == "uid-1");
  CHECK(env["PYTHONUNBUFFERED"] == "1");
  // Set, it would make rank 0 look for a store that nobody runs.
  CHECK(env.count("TORCHELASTIC_USE_AGENT_STORE") == 0);
  for (const char* name : {"DTRAIN_HOSTFILE", "DLTS_HOSTFILE", "OMPI_MCA_orte_default_hostfile",
                           "PRTE_MCA_prte_default_hostfile"}) {
    CHECK(env[name] == "/run/hosts");
  }
}

TEST_CASE("TF_CONFIG lists every address once and names this task") {
  CHECK(tf_config(gang(), 1) ==
        R"({"cluster":{"worker":["node-a:5000","node-a:5001","node-b:5000"]},)"
        R"("task":{"index":1,"type":"worker"}})");
  GangPlace place = gang();
  place.ranks[0] = {.role = "chief", .index = 0, .host = "::1", .port = 7};
  const auto config = nlohmann::json::parse(tf_config(place, 0));
  CHECK(config["cluster"]["chief"] == nlohmann::json({"[::1]:7"}));
  CHECK(config["cluster"]["worker"].size() == 2);
  CHECK(config["task"]["type"] == "chief");
}

TEST_CASE("the host file has a line a node with its slots") {
  CHECK(hostfile_text(gang()) == "node-a slots=2\nnode-b slots=1\n");
}

TEST_CASE("parameter servers and the evaluator have no rank, and the evaluator is in no cluster") {
  GangPlace place = gang();
  place.ranks.push_back({.role = "ps", .index = 0, .host = "node-a", .port = 6000});
  place.ranks.push_back({.role = "evaluator", .index = 0, .host = "node-a", .port = 6001});
  auto env = vars(place, 3);
  CHECK(env.count("RANK") == 0);
  CHECK(env.count("WORLD_SIZE") == 0);
  CHECK(env["ROLE_NAME"] == "ps");
  CHECK(vars(place, 0)["WORLD_SIZE"] == "3");
  const auto config = nlohmann::json::parse(vars(place, 4)["TF_CONFIG"]);
  CHECK(config["cluster"]["ps"] == nlohmann::json({"node-a:6000"}));
  CHECK(config["cluster"].count("evaluator") == 0);
  CHECK(config["task"]["type"] == "evaluator");
  CHECK(hostfile_text(place) == "node-a slots=2\nnode-b slots=1\n");
}

namespace {

/// The gang's two nodes, a GPU a rank; a parameter server and an evaluator are on the first.
GangPlace with_gpus(const std::vector<std::vector<std::string>>& gpus, GpuView view) {
  GangPlace place = gang();
  place.ranks.push_back({.role = "ps", .index = 0, .host = "node-a", .port = 6000});
  place.ranks.push_back({.role = "evaluator", .index = 0, .host = "node-a", .port = 6001});
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    place.ranks[i].gpus = gpus[i];
  }
  place.gpu_view = view;
  return place;
}

} // namespace

TEST_CASE("a rank with one GPU sees all of its node's, and LOCAL_RANK picks its own") {
  const auto place = with_gpus({{"3"}, {"GPU-a"}, {"3"}, {}, {"5"}}, GpuView::automatic);
  for (int rank = 0; rank < 3; ++rank) {
    CAPTURE(rank);
    auto env = vars(place, rank);
    CHECK(env["CUDA_VISIBLE_DEVICES"] == (rank == 2 ? "3" : "3,GPU-a"));
    CHECK(env["LOCAL_RANK"] == (rank == 1 ? "1" : "0"));
    CHECK(env["LOCAL_WORLD_SIZE"] == (rank == 2 ? "1" : "2"));
    CHECK(env["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID");
  }
  CHECK(vars(place, 3)["CUDA_VISIBLE_DEVICES"] == "");  // A server without GPUs …
  CHECK(vars(place, 4)["CUDA_VISIBLE_DEVICES"] == "5"); // … and an evaluator, which is no rank.
  CHECK(vars(place, 4).count("LOCAL_RANK") == 0);
}

TEST_CASE("a rank that sees its own GPUs alone is alone on its node, as a Pod is") {
  const std::vector<std::vector<std::string>> several = {{"0", "1"}, {"2", "3"}, {"0", "1"}, {"4"}};
  for (const auto& [gpus, view] :
       {std::pair(several, GpuView::rank),
        std::pair(std::vector<std::vector<std::string>>{{"0"}, {"1"}, {"0"}}, GpuView::rank),
        // CUDA shows a process no more than one part of a GPU.
        std::pair(std::vector<std::vector<std::string>>{{"MIG-a"}, {"MIG-b"}, {"MIG-c"}},
                  GpuView::automatic)}) {
    const auto place = with_gpus(gpus, view);
    for (int rank = 0; rank < 3; ++rank) {
      CAPTURE(rank);
      auto env = vars(place, rank);
      const auto& own = gpus[static_cast<std::size_t>(rank)];
      CHECK(env["CUDA_VISIBLE_DEVICES"] == (own.size() == 1 ? own[0] : own[0] + "," + own[1]));
      CHECK(env["LOCAL_RANK"] == "0");
      CHECK(env["LOCAL_WORLD_SIZE"] == "1");
      CHECK(env["NODE_RANK"] == env["RANK"]);
      CHECK(env["GROUP_RANK"] == env["RANK"]);
      CHECK(env["GROUP_WORLD_SIZE"] == env["WORLD_SIZE"]);
    }
    CHECK(hostfile_text(place) == "node-a slots=2\nnode-b slots=1\n");
  }
  auto told = vars(with_gpus({{"MIG-a"}, {"MIG-b"}, {"MIG-c"}}, GpuView::node), 1);
  CHECK(told["CUDA_VISIBLE_DEVICES"] == "MIG-a,MIG-b"); // By somebody who knows better.
  CHECK(told["LOCAL_RANK"] == "1");
}

TEST_CASE("GPUs that the ranks of a node share are shown once") {
  const auto place = with_gpus({{"1", "3"}, {"1", "3"}, {"2"}}, GpuView::automatic);
  auto env = vars(place, 1);
  CHECK(env["CUDA_VISIBLE_DEVICES"] == "1,3");
  CHECK(env["LOCAL_RANK"] == "1");
  CHECK(vars(place, 2)["CUDA_VISIBLE_DEVICES"] == "2");
}

TEST_CASE("ranks without GPUs count through their node, and see what it shows them or none") {
  auto env = vars(gang(), 1);
  CHECK(env.count("CUDA_VISIBLE_DEVICES") + env.count("CUDA_DEVICE_ORDER") == 0);
  env = vars(with_gpus({{}, {}, {}}, GpuView::rank), 1); // Too few for all: on the CPU.
  CHECK(env["CUDA_VISIBLE_DEVICES"] == "");
  CHECK(env["LOCAL_RANK"] == "1");
  CHECK(env["LOCAL_WORLD_SIZE"] == "2");
}

TEST_CASE("a launcher has a host file and no place among the ranks") {
  GangPlace place = gang();
  place.ranks = {{.role = "launcher", .index = 0, .host = "here", .port = 1}};
  place.launcher_hosts = {"a", "b"};
  place.launcher_slots = 4;
  CHECK(hostfile_text(place) == "a slots=4\nb slots=4\n");
  place.launcher_hosts = {"a", "b", "b"};
  CHECK(hostfile_text(place) == "a slots=4\nb slots=8\n");
  auto env = vars(place, 0);
  CHECK(env.count("RANK") == 0);
  CHECK(env.count("TF_CONFIG") == 0);
  CHECK(env["DTRAIN_HOSTFILE"] == "/run/hosts");
}

TEST_CASE("torchrun's own flags have their defaults where it starts the processes") {
  GangPlace place = gang();
  place.torchrun_nproc = "2";
  auto env = vars(place, 1);
  CHECK(env["PET_NNODES"] == "3");
  CHECK(env["PET_NODE_RANK"] == "1");
  CHECK(env["PET_NPROC_PER_NODE"] == "2");
  CHECK(env["PET_MASTER_PORT"] == env["MASTER_PORT"]);
}
