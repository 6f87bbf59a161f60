#include "trainer/cluster/cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "submit/errors.h"
#include "trainer/errors.h"

namespace trainer {
namespace {

constexpr int k_max_ranks = 1 << 20;
constexpr int k_max_port = 65535;
constexpr const char* k_this_host = "127.0.0.1";

/// The environment, with every mistake naming its variable.
class Environment {
 public:
  explicit Environment(const GetEnv& get) : get_(get) {}

  std::string text(const char* name) const { return get_(name).value_or(""); }
  bool has(const char* name) const { return !text(name).empty(); }

  /// Within [minimum, maximum].
  int number(const char* name, int minimum, int maximum) const {
    const std::string value = text(name);
    int result = 0;
    const char* end = value.data() + value.size();
    const auto [stop, error] = std::from_chars(value.data(), end, result);
    if (value.empty() || error != std::errc() || stop != end || result < minimum ||
        result > maximum) {
      throw ClusterError(fmt::format("{}={}: must be a whole number from {} to {}", name,
                                     dtrain::printable(value), minimum, maximum));
    }
    return result;
  }
  int number_or(const char* name, int minimum, int maximum, int fallback) const {
    return has(name) ? number(name, minimum, maximum) : fallback;
  }

 private:
  const GetEnv& get_;
};

/// Names under which a launcher says the same four things.
struct LauncherNames {
  const char* rank;
  const char* world_size;
  const char* local_rank;
  const char* local_world_size; ///< Null: the launcher does not say.
  const char* node_rank;        ///< Null: likewise.
};

constexpr LauncherNames k_torchrun = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
                                      "NODE_RANK"};
constexpr LauncherNames k_open_mpi = {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                                      "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE",
                                      nullptr};
constexpr LauncherNames k_slurm = {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", nullptr,
                                   "SLURM_NODEID"};

void read_place(const Environment& env, const LauncherNames& names, Cluster& cluster) {
  for (const auto& [name, other] :
       {std::pair(names.rank, names.world_size), std::pair(names.world_size, names.rank)}) {
    if (!env.has(name)) {
      throw ClusterError(
          fmt::format("{} is set but {} is not; set both, or neither to train alone", other, name));
    }
  }
  cluster.source = names.rank;
  cluster.world_size = env.number(names.world_size, 1, k_max_ranks);
  cluster.rank = env.number(names.rank, 0, k_max_ranks);
  if (cluster.rank >= cluster.world_size) {
    throw ClusterError(fmt::format("{}={}: out of range, {} is {}", names.rank, cluster.rank,
                                   names.world_size, cluster.world_size));
  }
  cluster.local_rank = env.number_or(names.local_rank, 0, k_max_ranks, 0);
  cluster.local_world_size = cluster.local_rank + 1;
  if (names.local_world_size != nullptr) {
    cluster.local_world_size =
        env.number_or(names.local_world_size, 1, k_max_ranks, cluster.local_world_size);
  }
  if (cluster.local_rank >= cluster.local_world_size) {
    throw ClusterError(fmt::format("{}={}: out of range, {} is {}", names.local_rank,
                                   cluster.local_rank, names.local_world_size,
                                   cluster.local_world_size));
  }
  if (names.node_rank != nullptr) {
    cluster.node_rank = env.number_or(names.node_rank, 0, k_max_ranks, 0);
  }
}

/// MASTER_ADDR and MASTER_PORT, or a default address where all ranks are known to be on one host.
void read_master(const Environment& env, const char* default_address, Cluster& cluster) {
  const bool is_given = env.has("MASTER_ADDR") && env.has("MASTER_PORT");
  if (cluster.world_size == 1 && !is_given) {
    return; // With it, others may join.
  }
  cluster.master_addr = env.text("MASTER_ADDR");
  if (cluster.master_addr.empty()) {
    cluster.master_addr = default_address == nullptr ? "" : default_address;
  }
  const char* missing = cluster.master_addr.empty() ? "MASTER_ADDR"
                        : !env.has("MASTER_PORT")   ? "MASTER_PORT"
                                                    : nullptr;
  if (missing != nullptr) {
    throw ClusterError(fmt::format("{} is not set; {} ranks meet at rank 0's MASTER_ADDR and "
                                   "MASTER_PORT, set both on every rank",
                                   missing, cluster.world_size));
  }
  cluster.master_port = env.number("MASTER_PORT", 1, k_max_port);
}

struct HostPort {
  std::string host;
  int port;
};

/// Splits an address that parse_tf_config() has checked; removes the brackets of an IPv6 host.
HostPort split_address(const std::string& address) {
  const std::size_t colon = address.rfind(':');
  std::string host = address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  return {host, std::atoi(address.c_str() + colon + 1)};
}

/// Local rank, its count and the node's number, from which ranks share a host.
void place_by_hosts(const std::vector<HostPort>& ranks, Cluster& cluster) {
  const std::string& own = ranks[static_cast<std::size_t>(cluster.rank)].host;
  std::vector<std::string> hosts;
  cluster.local_rank = 0;
  cluster.local_world_size = 0;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const std::string& host = ranks[i].host;
    if (std::find(hosts.begin(), hosts.end(), host) == hosts.end()) {
      hosts.push_back(host);
    }
    cluster.local_rank += host == own && i < static_cast<std::size_t>(cluster.rank) ? 1 : 0;
    cluster.local_world_size += host == own ? 1 : 0;
  }
  cluster.node_rank = static_cast<int>(std::find(hosts.begin(), hosts.end(), own) - hosts.begin());
}

void check_agreement(const Cluster& tf_config, const Cluster& variables) {
  if (tf_config.rank != variables.rank || tf_config.world_size != variables.world_size) {
    throw ClusterError(fmt::format("TF_CONFIG says rank {} of {}, RANK and WORLD_SIZE say {} of "
                                   "{}; unset one of them or make them agree",
                                   tf_config.rank, tf_config.world_size, variables.rank,
                                   variables.world_size));
  }
}

/// The rank of a chief or worker.
Cluster place_of_task(const TfConfig& config) {
  Cluster cluster;
  cluster.source = "TF_CONFIG";
  std::vector<HostPort> ranks;
  for (const TfConfig::Job& job : config.cluster) {
    if (job.type == config.task_type) {
      cluster.rank = static_cast<int>(ranks.size()) + config.task_index;
    }
    if (job.type == "chief" || job.type == "worker") {
      std::transform(job.addresses.begin(), job.addresses.end(), std::back_inserter(ranks),
                     split_address);
    }
  }
  cluster.world_size = static_cast<int>(ranks.size());
  place_by_hosts(ranks, cluster);
  if (cluster.world_size > 1) {
    cluster.master_addr = ranks[0].host;
    cluster.master_port = ranks[0].port;
  }
  return cluster;
}

Cluster from_tf_config(const Environment& env, const TfConfig& config) {
  if (config.task_type == "ps" || config.task_type == "evaluator") {
    throw ClusterError(fmt::format("TF_CONFIG: task.type is {}; this trainer runs as chief or "
                                   "worker only",
                                   config.task_type));
  }
  Cluster cluster = place_of_task(config);
  if (env.has(k_torchrun.rank) || env.has(k_torchrun.world_size)) {
    Cluster variables;
    read_place(env, k_torchrun, variables);
    check_agreement(cluster, variables);
    variables.source = cluster.source;
    if (env.has("MASTER_ADDR") || env.has("MASTER_PORT")) {
      read_master(env, nullptr, variables);
    } else {
      variables.master_addr = cluster.master_addr;
      variables.master_port = cluster.master_port;
    }
    return variables;
  }
  return cluster;
}

Cluster place_in_world(const Environment& env) {
  if (env.has("TF_CONFIG")) {
    const TfConfig config = parse_tf_config(env.text("TF_CONFIG"));
    if (!config.cluster.empty()) {
      return from_tf_config(env, config);
    }
  }
  Cluster cluster;
  cluster.source = "none";
  if (env.has(k_torchrun.rank) || env.has(k_torchrun.world_size)) {
    read_place(env, k_torchrun, cluster);
    read_master(env, nullptr, cluster);
  } else if (env.has(k_open_mpi.rank)) {
    read_place(env, k_open_mpi, cluster);
    const bool one_host = cluster.local_world_size == cluster.world_size;
    if (env.has("MASTER_ADDR") || env.has("MASTER_PORT")) {
      read_master(env, one_host ? k_this_host : nullptr, cluster);
    }
  } else if (env.has(k_slurm.rank) && env.number_or(k_slurm.world_size, 1, k_max_ranks, 1) > 1) {
    read_place(env, k_slurm, cluster);
    const bool one_host = env.number_or("SLURM_NNODES", 1, k_max_ranks, 0) == 1;
    read_master(env, one_host ? k_this_host : nullptr, cluster);
  }
  return cluster;
}

} // namespace

int local_rank_of(const TfConfig& config, const GetEnv& get) {
  const Environment env(get);
  const bool is_rank = config.task_type == "chief" || config.task_type == "worker";
  return env.number_or(k_torchrun.local_rank, 0, k_max_ranks,
                       is_rank ? place_of_task(config).local_rank : 0);
}

Cluster cluster_from_env(const GetEnv& get) {
  const Environment env(get);
  Cluster cluster = place_in_world(env);
  cluster.job_token = env.text("DTRAIN_JOB_TOKEN");
  cluster.min_workers = env.number_or("DTRAIN_MIN_WORKERS", 1, k_max_ranks, 0);
  cluster.max_workers = env.number_or("DTRAIN_MAX_WORKERS", 1, k_max_ranks, 0);
  return cluster;
}

Cluster cluster_from_env() {
  return cluster_from_env([](const char* name) -> std::optional<std::string> {
    const char* value = std::getenv(name);
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  });
}

} // namespace trainer
