#include "submit/fields/job_field_groups.h"

namespace dtrain {
namespace {

constexpr const char* k_placement_group = "Cluster";

JobField sharing_field(const char* key, const char* flag, const char* alias, bool JobSpec::*flag_of,
                       const char* help) {
  return {.key = key,
          .flags = flag,
          .member = member(flag_of),
          .metavar = "",
          .help = help,
          .group = k_placement_group,
          .aliases = {alias}}; // This machine's processes share it anyway.
}

} // namespace

std::vector<JobField> placement_fields() {
  return {
      {.key = "scheduler",
       .flags = "--scheduler",
       .member = member(&JobSpec::scheduler),
       .metavar = "NAME",
       .help = "Scheduler that places the job (default: the cluster's)",
       .group = k_placement_group},
      {.key = "api",
       .flags = "--api",
       .member = member(&JobSpec::api),
       .metavar = "API",
       .help =
           "What the job is made of: Kubernetes' own Jobs (job, the default), a JobSet, which "
           "starts all ranks anew when one has failed (jobset), or Kubeflow Trainer's TrainJob, "
           "which makes such a JobSet (trainjob)",
       .group = k_placement_group,
       .choices = {"job", "jobset", "trainjob"}},
      {.key = "gpuType",
       .flags = "--gpu-type",
       .member = member(&JobSpec::gpu_type),
       .metavar = "MODEL",
       .help = "Model that the GPUs must be of",
       .group = k_placement_group},
      {.key = "devices",
       .flags = "--device",
       .member = member(&JobSpec::devices),
       .metavar = "RESOURCE=N",
       .help = "Other devices of each worker (amd.com/gpu=1); may be repeated",
       .group = k_placement_group},
      {.key = "nodeList",
       .flags = "--node-list",
       .member = member(&JobSpec::node_list),
       .metavar = "NODE",
       .help = "Node that may be used, or several with commas between them; may be repeated",
       .group = k_placement_group,
       .env = "DTRAIN_HOSTS"},
      {.key = "topologySpread",
       .flags = "--topology-spread",
       .member = member(&JobSpec::topology_spread),
       .metavar = "KEY[:required]",
       .help = "Spread the workers evenly over the nodes' values of this label "
               "(topology.kubernetes.io/zone, kubernetes.io/hostname); with ':required' a worker "
               "waits rather than make it uneven; may be repeated",
       .group = k_placement_group},
      {.key = "binpack",
       .flags = "--binpack",
       .member = member(&JobSpec::binpack),
       .metavar = "",
       .help = "Put the workers on as few nodes as can be",
       .group = k_placement_group},
      {.key = "gang",
       .flags = "--gang",
       .member = member(&JobSpec::gang),
       .metavar = "",
       .help = "Start all instances or none: in a cluster, by Volcano, or by coscheduling with "
               "--scheduler=NAME",
       .group = k_placement_group}, // This machine never does otherwise.
      {.key = "rdma",
       .flags = "--rdma",
       .member = member(&JobSpec::rdma),
       .metavar = "",
       .help = "Give the ranks the node's InfiniBand or RoCE devices, which processes of this "
               "machine have anyway: in a cluster, rdma/hca (another name: --device=NAME=1) and "
               "the capability IPC_LOCK",
       .group = k_placement_group},
      {.key = "preemptible",
       .flags = "--preemptible",
       .member = member(&JobSpec::preemptible),
       .metavar = "",
       .help =
           "Its ranks may be ended to make room for a job of higher priority (--priority), which "
           "counts as no failure",
       .group = k_placement_group},
      sharing_field("hostIPC", "--host-ipc", "--hostIPC", &JobSpec::host_ipc,
                    "Share the node's shared memory and semaphores"),
      sharing_field("hostNetwork", "--host-network", "--hostNetwork", &JobSpec::host_network,
                    "Share the node's network"),
      sharing_field("hostPID", "--host-pid", "--hostPID", &JobSpec::host_pid,
                    "Share the node's process numbers"),
  };
}

} // namespace dtrain
