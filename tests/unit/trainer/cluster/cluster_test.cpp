#include "trainer/cluster/cluster.h"

#include <doctest/doctest.h>

#include <map>

#include "tests/unit/trainer/temp_folder.h"
#include "trainer/errors.h"

using namespace trainer;

namespace {

using Vars = std::map<std::string, std::string>;

Cluster cluster_of(const Vars& vars) {
  return cluster_from_env([&](const char* name) -> std::optional<std::string> {
    const auto it = vars.find(name);
    return it == vars.end() ? std::nullopt : std::optional(it->second);
  });
}

std::string error_of(const Vars& vars) {
  return message_of<ClusterError>([&] { cluster_of(vars); });
}

std::string tf_error(const std::string& json) { return error_of({{"TF_CONFIG", json}}); }

std::string with_task(const std::string& cluster, const std::string& task) {
  return R"({"cluster":)" + cluster + R"(,"task":)" + task + "}";
}

const std::string k_three = R"({"worker":["b:2","b:3"],"chief":["a:1"]})";

} // namespace

TEST_CASE("without any variable a process trains alone") {
  const Cluster cluster = cluster_of({{"TF_CONFIG", "{}"}, {"DTRAIN_JOB_TOKEN", "secret"}});
  CHECK(cluster.world_size == 1);
  CHECK(cluster.source == "none");
  CHECK(cluster.job_token == "secret");
}

TEST_CASE("TF_CONFIG gives rank, host places and the rendezvous, chief first") {
  const Cluster cluster =
      cluster_of({{"TF_CONFIG", with_task(k_three, R"({"type":"worker","index":1})")}});
  CHECK(cluster.source == "TF_CONFIG");
  CHECK(cluster.rank == 2);
  CHECK(cluster.world_size == 3);
  CHECK(cluster.local_rank == 1);
  CHECK(cluster.local_world_size == 2);
  CHECK(cluster.node_rank == 1);
  CHECK(cluster.master_addr == "a");
  CHECK(cluster.master_port == 1);
}

TEST_CASE("an IPv6 address loses its brackets") {
  const Cluster cluster = cluster_of({{"TF_CONFIG", with_task(R"({"worker":["[::1]:5","[::1]:6"]})",
                                                              R"({"type":"worker","index":0})")}});
  CHECK(cluster.master_addr == "::1");
  CHECK(cluster.master_port == 5);
}

TEST_CASE("RANK and TF_CONFIG together must agree, and RANK's places are taken") {
  Vars vars = {{"TF_CONFIG", with_task(k_three, R"({"type":"chief","index":0})")},
               {"RANK", "0"},
               {"WORLD_SIZE", "3"},
               {"MASTER_ADDR", "a"},
               {"MASTER_PORT", "77"}};
  CHECK(cluster_of(vars).master_port == 77);
  vars["RANK"] = "1";
  CHECK(contains(error_of(vars), "TF_CONFIG says rank 0 of 3, RANK and WORLD_SIZE say 1 of 3"));
}

TEST_CASE("torchrun's, Open MPI's and Slurm's variables are understood") {
  const Cluster torch = cluster_of({{"RANK", "3"},
                                    {"WORLD_SIZE", "4"},
                                    {"LOCAL_RANK", "1"},
                                    {"LOCAL_WORLD_SIZE", "2"},
                                    {"NODE_RANK", "1"},
                                    {"MASTER_ADDR", "m"},
                                    {"MASTER_PORT", "9"}});
  CHECK(torch.rank == 3);
  CHECK(torch.node_rank == 1);
  CHECK(torch.source == "RANK");
  const Cluster mpi = cluster_of({{"OMPI_COMM_WORLD_RANK", "1"},
                                  {"OMPI_COMM_WORLD_SIZE", "2"},
                                  {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                                  {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                                  {"MASTER_PORT", "9"}});
  CHECK(mpi.master_addr == "127.0.0.1");
  CHECK(mpi.source == "OMPI_COMM_WORLD_RANK");
  const Cluster slurm = cluster_of(
      {{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}, {"MASTER_ADDR", "m"}, {"MASTER_PORT", "9"}});
  CHECK(slurm.rank == 1);
  CHECK(cluster_of({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}}).source == "none");
}

TEST_CASE("a variable that is missing or no number is named") {
  CHECK(contains(error_of({{"RANK", "0"}}), "RANK is set but WORLD_SIZE is not"));
  CHECK(contains(error_of({{"WORLD_SIZE", "2"}}), "WORLD_SIZE is set but RANK is not"));
  CHECK(contains(error_of({{"RANK", "x\n"}, {"WORLD_SIZE", "2"}}), "RANK=x\\n: must be a whole"));
  CHECK(contains(error_of({{"RANK", "2"}, {"WORLD_SIZE", "2"}}), "RANK=2: out of range"));
  CHECK(contains(error_of({{"RANK", "0"}, {"WORLD_SIZE", "0"}}), "WORLD_SIZE=0"));
  CHECK(contains(error_of({{"RANK", "0"}, {"WORLD_SIZE", "2"}}), "MASTER_ADDR is not set"));
  CHECK(contains(error_of({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}}),
                 "MASTER_PORT is not set"));
  CHECK(contains(
      error_of(
          {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "70000"}}),
      "MASTER_PORT=70000"));
}

TEST_CASE("every mistake in TF_CONFIG is one line that names the key") {
  CHECK(contains(tf_error("{"), "TF_CONFIG: not JSON: parse error at line 1, column 2"));
  CHECK(contains(tf_error("[1e999]"), "TF_CONFIG: not JSON: number overflow"));
  CHECK(contains(tf_error("[]"), "must be a JSON object"));
  CHECK(
      contains(tf_error(with_task(R"({"worker":["a:1","a:1"]})", R"({"type":"worker","index":0})")),
               "cluster.worker[0] and cluster.worker[1] have the same address a:1"));
  CHECK(contains(tf_error(with_task(R"({"worker":["a:1"]})", R"({"type":"worker","index":1})")),
                 "task.index: 1 is out of range, cluster.worker has 1 address (0 to 0)"));
  CHECK(contains(tf_error(with_task(R"({"worker":["a:1"]})", R"({"type":"worker","index":-1})")),
                 "task.index: -1 is out of range"));
  CHECK(contains(tf_error(with_task(R"({"worker":["a:1"]})",
                                    R"({"type":"worker","index":18446744073709551615})")),
                 "is out of range"));
  CHECK(contains(tf_error(with_task(R"({"wroker":["a:1"]})", R"({"type":"worker","index":0})")),
                 "cluster.wroker: no such task type"));
  CHECK(contains(tf_error(with_task(R"({"worker":["a:1"]})", R"({"type":"chief","index":0})")),
                 "task.type: 'chief', but the cluster has none"));
  CHECK(contains(tf_error(with_task(R"({"chief":["a:1","b:1"]})", R"({"type":"chief","index":0})")),
                 "there can be only one"));
  CHECK(contains(tf_error(with_task(R"({"worker":["a"]})", R"({"type":"worker","index":0})")),
                 "cluster.worker[0]: 'a' is not host:port"));
  CHECK(contains(tf_error(with_task(R"({"worker":[3]})", R"({"type":"worker","index":0})")),
                 "must be a string"));
  CHECK(contains(tf_error(R"({"cluster":{"worker":["a:1"]}})"), "task: is missing"));
  CHECK(contains(
      tf_error(with_task(R"({"worker":["a:1"],"ps":["b:1"]})", R"({"type":"ps","index":0})")),
      "task.type is ps"));
  for (const char* json : {"{", "\"\n\"", R"({"cluster":{"a\nb":1}})"}) {
    CHECK(!contains(tf_error(json), "\n"));
  }
}
