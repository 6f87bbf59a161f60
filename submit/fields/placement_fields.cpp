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
    {.key = "scheduler",
     .flags = "--scheduler",
     .member = member(&JobSpec::scheduler),
     .metavar = "NAME",
     .help = "Scheduler that places the job (default: the cluster's)",
     .group = k_placement_group,
     .aliases = {"--scheduler-name"}},
    {.key = "api",
     .flags = "--api",
     .member = member(&JobSpec::api),
     .metavar = "API",
     .help = "What the job is made of, where an engine has several kinds of objects for it",
     .group = k_placement_group,
     .choices = {"job", "jobset", "trainjob"}},
    {.key = "gpuType",
     .flags = "--gpu-type",
     .member = member(&JobSpec::gpu_type),
     .metavar = "MODEL",
     .help = "GPU model the nodes must have",
     .group = k_placement_group},
    {.key = "devices",
     .flags = "--device",
     .member = member(&JobSpec::devices),
     .metavar = "RESOURCE=N",
     .help = "Other devices per worker (amd.com/gpu=1); may be repeated",
     .group = k_placement_group},
    {.key = "nodeList",
     .flags = "--node-list",
     .member = member(&JobSpec::node_list),
     .metavar = "NODE",
     .help = "Nodes that may be used, separated by commas; may be repeated",
     .group = k_placement_group,
     .env = "DTRAIN_HOSTS",
     .aliases = {"--nodelist"}},
    {.key = "topologySpread",
     .flags = "--topology-spread",
     .member = member(&JobSpec::topology_spread),
     .metavar = "KEY[:required]",
     .help = "Spread the workers evenly over the values of this node label, or "
             "over the nodes themselves (node); with ':required' a worker waits rather than "
             "make it uneven; may be repeated",
     .group = k_placement_group},
    {.key = "binpack",
     .flags = "--binpack",
     .member = member(&JobSpec::binpack),
     .metavar = "",
     .help = "Put the workers on as few nodes as possible",
     .group = k_placement_group},
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
    {.key = "engineOptions",
     .flags = "",
     .member = member(&JobSpec::engine_options),
     .metavar = "KEY=VALUE",
     .help = "Backend-specific flags",
     .group = k_placement_group},
};

} // namespace

std::span<const JobField> placement_fields() { return k_placement_fields; }

} // namespace dtrain
