#include "submit/fields/job_field_groups.h"

namespace dtrain {
namespace {

constexpr const char* k_placement_group = "Cluster";

constexpr JobField sharing_field(const char* key, const char* flag, const char* alias,
                                 bool JobSpec::*flag_of, const char* help) {
  return {.key = key,
          .flags = flag,
          .member = member(flag_of),
          .metavar = "",
          .help = help,
          .group = k_placement_group,
          .aliases = {alias}};
}

constexpr JobField k_placement_fields[] = {
    {.key = "nodeList",
     .flags = "--node-list",
     .member = member(&JobSpec::node_list),
     .metavar = "NODE",
     .help = "Nodes that may be used, separated by commas; may be repeated",
     .group = k_placement_group,
     .env = "DTRAIN_HOSTS",
     .aliases = {"--nodelist"}},
    {.key = "gang",
     .flags = "--gang",
     .member = member(&JobSpec::gang),
     .metavar = "",
     .help = "Start all instances or none",
     .group = k_placement_group},
    {.key = "rdma",
     .flags = "--rdma",
     .member = member(&JobSpec::rdma),
     .metavar = "",
     .help = "Give the ranks the node's InfiniBand or RoCE devices",
     .group = k_placement_group},
    {.key = "preemptible",
     .flags = "--preemptible",
     .member = member(&JobSpec::preemptible),
     .metavar = "",
     .help = "The job may be stopped to make room for one of higher priority "
             "(--priority), which does not count as a failure",
     .group = k_placement_group,
     .aliases = {"--spot-instance"}},
    sharing_field("hostIPC", "--host-ipc", "--hostIPC", &JobSpec::host_ipc,
                  "Share the node's shared memory and semaphores"),
    sharing_field("hostNetwork", "--host-network", "--hostNetwork", &JobSpec::host_network,
                  "Share the node's network"),
    sharing_field("hostPID", "--host-pid", "--hostPID", &JobSpec::host_pid,
                  "Share the node's process numbers"),
};

} // namespace

std::span<const JobField> placement_fields() { return k_placement_fields; }

} // namespace dtrain
