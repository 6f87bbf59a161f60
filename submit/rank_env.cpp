#include "submit/rank_env.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>

namespace dtrain {
namespace {

/// Where a rank stands among the nodes.
struct NodePlace {
  int node_rank = 0;
  int nodes = 0;
  int local_rank = 0;
  int local_world_size = 0;
};

NodePlace node_place(const GangPlace& gang, int rank) {
  NodePlace place;
  const std::string& mine = gang.ranks[static_cast<std::size_t>(rank)].host;
  const std::string* previous = nullptr;
  for (int i = 0; i < static_cast<int>(gang.ranks.size()); ++i) {
    const std::string& host = gang.ranks[static_cast<std::size_t>(i)].host;
    place.nodes += previous == nullptr || *previous != host ? 1 : 0;
    if (i == rank) {
      place.node_rank = place.nodes - 1;
      place.local_rank = place.local_world_size;
    }
    place.local_world_size += host == mine ? 1 : 0;
    previous = &host;
  }
  return place;
}

std::string address(const RankPlace& place) {
  const bool is_ipv6 = place.host.find(':') != std::string::npos;
  return is_ipv6 ? fmt::format("[{}]:{}", place.host, place.port)
                 : fmt::format("{}:{}", place.host, place.port);
}

/// Ranks of the same role as `rank`.
int role_size(const GangPlace& gang, int rank) {
  const std::string& role = gang.ranks[static_cast<std::size_t>(rank)].role;
  return static_cast<int>(std::count_if(gang.ranks.begin(), gang.ranks.end(),
                                        [&](const RankPlace& r) { return r.role == role; }));
}

} // namespace

std::string tf_config(const GangPlace& gang, int rank) {
  nlohmann::json cluster = nlohmann::json::object();
  for (const RankPlace& place : gang.ranks) {
    cluster[place.role].push_back(address(place));
  }
  const RankPlace& self = gang.ranks[static_cast<std::size_t>(rank)];
  const nlohmann::json config = {{"cluster", cluster},
                                 {"task", {{"type", self.role}, {"index", self.index}}}};
  return config.dump();
}

std::string hostfile_text(const GangPlace& gang) {
  std::string text;
  for (std::size_t begin = 0; begin < gang.ranks.size();) {
    std::size_t end = begin;
    while (end < gang.ranks.size() && gang.ranks[end].host == gang.ranks[begin].host) {
      ++end;
    }
    text += fmt::format("{} slots={}\n", gang.ranks[begin].host, end - begin);
    begin = end;
  }
  return text;
}

EnvVars rank_env(const GangPlace& gang, int rank) {
  const NodePlace place = node_place(gang, rank);
  const RankPlace& self = gang.ranks[static_cast<std::size_t>(rank)];
  const auto text = [](auto number) { return fmt::format("{}", number); };

  EnvVars vars = {
      // What torch.distributed's env:// reads, and by now every framework.
      {"RANK", text(rank)},
      {"WORLD_SIZE", text(gang.ranks.size())},
      {"LOCAL_RANK", text(place.local_rank)},
      {"LOCAL_WORLD_SIZE", text(place.local_world_size)},
      {"NODE_RANK", text(place.node_rank)},
      {"MASTER_ADDR", gang.master_addr},
      {"MASTER_PORT", text(gang.master_port)},
      // What torchrun sets besides. TORCHELASTIC_RUN_ID tells Lightning and Accelerate that the
      // processes are there already; TORCHELASTIC_USE_AGENT_STORE stays unset, so that rank 0
      // makes the store at MASTER_PORT itself.
      {"GROUP_RANK", text(place.node_rank)},
      {"GROUP_WORLD_SIZE", text(place.nodes)},
      {"ROLE_NAME", self.role},
      {"ROLE_RANK", text(self.index)},
      {"ROLE_WORLD_SIZE", text(role_size(gang, rank))},
      {"TORCHELASTIC_RUN_ID", gang.job_uid},
      {"TORCHELASTIC_RESTART_COUNT", text(gang.restart_count)},
      {"TORCHELASTIC_MAX_RESTARTS", text(gang.max_restarts)},
      // TensorFlow's MultiWorkerMirrored and ParameterServer strategies.
      {"TF_CONFIG", tf_config(gang, rank)},
      // Ours: who the job is, and the secret its ranks prove to one another.
      {"DTRAIN_JOB_NAME", gang.job_name},
      {"DTRAIN_JOB_NAMESPACE", gang.namespace_name},
      {"DTRAIN_JOB_UID", gang.job_uid},
      {"DTRAIN_JOB_TOKEN", gang.job_token},
      {"DTRAIN_RESTART_COUNT", text(gang.restart_count)},
      // Or the last lines of a rank that dies stay in its buffer.
      {"PYTHONUNBUFFERED", "1"},
  };
  if (!gang.hostfile_path.empty()) {
    // DeepSpeed's launcher takes --hostfile (GPT-NeoX's reads DLTS_HOSTFILE); mpirun takes its
    // default from an MCA variable, of ORTE to Open MPI 4 and of PRRTE from 5 on.
    for (const char* name : {"DTRAIN_HOSTFILE", "DLTS_HOSTFILE", "OMPI_MCA_orte_default_hostfile",
                             "PRTE_MCA_prte_default_hostfile"}) {
      vars.emplace_back(name, gang.hostfile_path);
    }
  }
  return vars;
}

} // namespace dtrain
