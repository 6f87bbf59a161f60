#include "submit/rank_env.h"

#include "submit/job_roles.h"
#include "submit/template/quote.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <map>

namespace dtrain {
namespace {

/// The place of a rank among the nodes.
struct NodePlace {
  int node_rank = 0;
  int nodes = 0;
  int local_rank = 0;
  int local_world_size = 0;
};

int world_size(const GangPlace& gang) {
  return static_cast<int>(
      std::count_if(gang.ranks.begin(), gang.ranks.end(),
                    [](const RankPlace& place) { return is_ranked_role(place.role); }));
}

/// Every rank sees its own GPUs alone. A gang has one view, or nodes would be counted in two ways.
bool sees_own_alone(const GangPlace& gang) {
  const auto any_of_ranks = [&](const auto& is_so) {
    return std::any_of(gang.ranks.begin(), gang.ranks.end(), [&](const RankPlace& place) {
      return is_ranked_role(place.role) && place.gpus && is_so(*place.gpus);
    });
  };
  const auto has_some = [](const auto& gpus) { return !gpus.empty(); };
  return (gang.gpu_view == GpuView::rank && any_of_ranks(has_some)) ||
         (gang.gpu_view == GpuView::automatic && any_of_ranks(are_parts));
}

/// If each rank has one GPU: the node's GPUs in the order of local ranks, the same for all of them.
std::string visible_devices(const GangPlace& gang, const RankPlace& self) {
  if (self.gpus->empty() || !is_ranked_role(self.role) || sees_own_alone(gang)) {
    return fmt::format("{}", fmt::join(*self.gpus, ","));
  }
  std::vector<std::string> devices;
  for (const RankPlace& place : gang.ranks) {
    if (is_ranked_role(place.role) && place.host == self.host && place.gpus) {
      std::copy_if(place.gpus->begin(), place.gpus->end(), std::back_inserter(devices),
                   [&](const std::string& gpu) { // Ranks that asked for none all have the same.
                     return std::find(devices.begin(), devices.end(), gpu) == devices.end();
                   });
    }
  }
  return fmt::format("{}", fmt::join(devices, ","));
}

NodePlace node_place(const GangPlace& gang, int rank) {
  if (sees_own_alone(gang)) {
    return {.node_rank = rank, .nodes = world_size(gang), .local_rank = 0, .local_world_size = 1};
  }
  NodePlace place;
  const std::string& mine = gang.ranks[static_cast<std::size_t>(rank)].host;
  const std::string* previous = nullptr;
  for (int i = 0, ranks = world_size(gang); i < ranks; ++i) {
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
  const auto type_of = [](const RankPlace& place) {
    return place.role == k_master ? std::string(k_chief) : place.role;
  };
  // By hand: every rank has one, and it names them all.
  std::map<std::string, std::string> cluster;
  for (const RankPlace& place : gang.ranks) {
    if (place.role == k_ps || is_ranked_role(place.role)) {
      std::string& addresses = cluster[type_of(place)];
      addresses += (addresses.empty() ? "" : ",") + quote_json(address(place));
    }
  }
  std::string types;
  for (const auto& [type, addresses] : cluster) {
    types += fmt::format("{}{}:[{}]", types.empty() ? "" : ",", quote_json(type), addresses);
  }
  const RankPlace& self = gang.ranks[static_cast<std::size_t>(rank)];
  return fmt::format(R"({{"cluster":{{{}}},"task":{{"index":{},"type":{}}}}})", types, self.index,
                     quote_json(type_of(self)));
}

std::string hostfile_text(const GangPlace& gang) {
  std::string text;
  const auto add = [&](std::size_t count, int slots, const auto& host_of) {
    for (std::size_t begin = 0; begin < count;) {
      std::size_t end = begin;
      while (end < count && host_of(end) == host_of(begin)) {
        ++end;
      }
      text += fmt::format("{} slots={}\n", host_of(begin), static_cast<int>(end - begin) * slots);
      begin = end;
    }
  };
  add(gang.launcher_hosts.size(), gang.launcher_slots,
      [&](std::size_t i) -> const std::string& { return gang.launcher_hosts[i]; });
  add(static_cast<std::size_t>(world_size(gang)), 1,
      [&](std::size_t i) -> const std::string& { return gang.ranks[i].host; });
  return text;
}

namespace {

std::string text_of(std::int64_t number) { return fmt::format("{}", number); }

/// Variables of ranks only: the rank, and its place among the nodes.
EnvVars numbers_of(const GangPlace& gang, int rank) {
  const NodePlace place = node_place(gang, rank);
  EnvVars vars = {
      // What torch.distributed's env:// reads, and by now every framework.
      {"RANK", text_of(rank)},
      {"WORLD_SIZE", text_of(world_size(gang))},
      {"LOCAL_RANK", text_of(place.local_rank)},
      {"LOCAL_WORLD_SIZE", text_of(place.local_world_size)},
      {"NODE_RANK", text_of(place.node_rank)},
      // What torchrun also sets. TORCHELASTIC_RUN_ID tells Lightning and Accelerate that the
      // processes have been started already; TORCHELASTIC_USE_AGENT_STORE stays unset, so that rank
      // 0 creates the store at MASTER_PORT itself.
      {"GROUP_RANK", text_of(place.node_rank)},
      {"GROUP_WORLD_SIZE", text_of(place.nodes)},
      {"TORCHELASTIC_RUN_ID", gang.job_uid},
      {"TORCHELASTIC_RESTART_COUNT", text_of(gang.restart_count)},
      {"TORCHELASTIC_MAX_RESTARTS", text_of(gang.max_restarts)},
  };
  if (!gang.torchrun_nproc.empty()) {
    // Defaults of torchrun's flags: each of our ranks is one of its nodes.
    const EnvVars torchrun = {{"PET_NNODES", text_of(world_size(gang))},
                              {"PET_NODE_RANK", text_of(rank)},
                              {"PET_NPROC_PER_NODE", gang.torchrun_nproc},
                              {"PET_MASTER_ADDR", gang.master_addr},
                              {"PET_MASTER_PORT", text_of(gang.master_port)}};
    vars.insert(vars.end(), torchrun.begin(), torchrun.end());
  }
  return vars;
}

} // namespace

EnvVars rank_env(const GangPlace& gang, int rank) {
  const RankPlace& self = gang.ranks[static_cast<std::size_t>(rank)];
  EnvVars vars = is_ranked_role(self.role) ? numbers_of(gang, rank) : EnvVars();
  const EnvVars common = {
      {"MASTER_ADDR", gang.master_addr},
      {"MASTER_PORT", text_of(gang.master_port)},
      {"ROLE_NAME", self.role},
      {"ROLE_RANK", text_of(self.index)},
      {"ROLE_WORLD_SIZE", text_of(role_size(gang, rank))},
      // Ours: who the job is, and the secret its ranks prove to one another.
      {"DTRAIN_JOB_NAME", gang.job_name},
      {"DTRAIN_JOB_NAMESPACE", gang.namespace_name},
      {"DTRAIN_JOB_UID", gang.job_uid},
      {"DTRAIN_JOB_TOKEN", gang.job_token},
      {"DTRAIN_RESTART_COUNT", text_of(gang.restart_count)},
      // Otherwise the last lines of a rank that dies stay in its buffer.
      {"PYTHONUNBUFFERED", "1"},
  };
  vars.insert(vars.end(), common.begin(), common.end());
  if (gang.min_workers > 0) {
    vars.emplace_back("DTRAIN_MIN_WORKERS", text_of(gang.min_workers));
  }
  if (gang.min_workers > 0 && gang.max_workers > 0) {
    vars.emplace_back("DTRAIN_MAX_WORKERS", text_of(gang.max_workers));
  }
  if (self.gpus) {
    vars.emplace_back("CUDA_VISIBLE_DEVICES", visible_devices(gang, self));
    // In the order of nvidia-smi, by which faulty GPUs are left out; CUDA's own order starts with
    // the fastest.
    vars.emplace_back("CUDA_DEVICE_ORDER", "PCI_BUS_ID");
  }
  if (self.role != k_launcher && self.role != k_tensorboard) {
    // TensorFlow's MultiWorkerMirrored and ParameterServer strategies.
    vars.emplace_back("TF_CONFIG", tf_config(gang, rank));
  }
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
