#include "submit/job_fields.h"

#include <cstring>

namespace dtrain {
namespace {

constexpr int k_max_gpus = 64; ///< More than any machine holds.
constexpr int k_max_restarts = 1'000'000;
constexpr int k_max_grace_ms = 3'600'000;

} // namespace

const std::vector<JobField>& job_fields() {
  static const std::vector<JobField> all = {
      {.key = "name",
       .flags = "--name",
       .member = &JobSpec::name,
       .metavar = "NAME",
       .help = "Name of the job, a DNS label (default: one is made up)",
       .group = "Job"},
      {.key = "workers",
       .flags = "--workers",
       .member = &JobSpec::workers,
       .metavar = "N",
       .help = "Workers, each one rank of the gang (default: 1)",
       .group = "Job",
       .minimum = 1,
       .maximum = k_max_workers},
      {.key = "gpus",
       .flags = "--gpus",
       .member = &JobSpec::gpus,
       .metavar = "N",
       .help = "GPUs of each worker; with too few of them a worker runs on the CPU (default: 0)",
       .group = "Job",
       .minimum = 0,
       .maximum = k_max_gpus},
      {.key = "requireGpus",
       .flags = "--require-gpus",
       .member = &JobSpec::require_gpus,
       .metavar = "",
       .help = "Fail where there are fewer GPUs than --gpus asks for",
       .group = "Job"},
      {.key = "env",
       .flags = "-e,--env",
       .member = &JobSpec::env,
       .metavar = "KEY=VALUE",
       .help = "Environment variable of every rank; may be repeated",
       .group = "Job"},
      {.key = "workingDir",
       .flags = "--working-dir",
       .member = &JobSpec::working_dir,
       .metavar = "DIR",
       .help = "Folder in which ranks start (default: this one)",
       .group = "Job",
       .complete = Complete::directory},
      {.key = "maxRestarts",
       .flags = "--max-restarts",
       .member = &JobSpec::max_restarts,
       .metavar = "N",
       .help = "Start the whole gang anew after a failure, at most so often (default: 0)",
       .group = "When a rank fails",
       .minimum = 0,
       .maximum = k_max_restarts},
      {.key = "gracePeriod",
       .flags = "--grace-period",
       .member = &JobSpec::grace_period_ms,
       .metavar = "TIME",
       .help = "Time between TERM and KILL when a gang is ended (default: 1s)",
       .group = "When a rank fails",
       .minimum = 0,
       .maximum = k_max_grace_ms,
       .duration = true},
      {.key = "namespace",
       .flags = "-n,--namespace",
       .member = &JobSpec::namespace_name,
       .metavar = "NAME",
       .help = "Namespace of the job (default: the context's, or default)",
       .group = "Where",
       .env = "DTRAIN_NAMESPACE"},
      {.key = "backend",
       .flags = "-b,--backend",
       .member = &JobSpec::backend,
       .metavar = "NAME",
       .help = "Engine that runs the job (default: local)",
       .group = "Where",
       .complete = Complete::choices,
       .env = "DTRAIN_BACKEND"},
      {.key = "priority",
       .flags = "-p,--priority",
       .member = &JobSpec::priority,
       .metavar = "CLASS",
       .help = "Priority class of the job",
       .group = "Where"},
      {.key = "image",
       .flags = "--image",
       .member = &JobSpec::image,
       .metavar = "IMAGE",
       .help = "Container image that the ranks run in",
       .group = k_container_group},
      {.key = "imagePullPolicy",
       .flags = "--image-pull-policy",
       .member = &JobSpec::image_pull_policy,
       .metavar = "POLICY",
       .help = "When to pull it: Always, IfNotPresent, Never (default: the cluster's)",
       .group = k_container_group},
      {.key = "imagePullSecrets",
       .flags = "--image-pull-secret",
       .member = &JobSpec::image_pull_secrets,
       .metavar = "NAME",
       .help = "Secret to pull it with; may be repeated",
       .group = k_container_group},
      {.key = "cpu",
       .flags = "--cpu",
       .member = &JobSpec::cpu,
       .metavar = "N",
       .help = "CPUs of each worker, as Kubernetes writes them (4, 500m)",
       .group = k_container_group},
      {.key = "memory",
       .flags = "--memory",
       .member = &JobSpec::memory,
       .metavar = "SIZE",
       .help = "Memory of each worker (16Gi)",
       .group = k_container_group},
      {.key = "shareMemory",
       .flags = "--share-memory",
       .member = &JobSpec::share_memory,
       .metavar = "SIZE",
       .help = "Size of /dev/shm (default: 2Gi)",
       .group = k_container_group},
      {.key = "selectors",
       .flags = "--selector",
       .member = &JobSpec::selectors,
       .metavar = "KEY=VALUE",
       .help = "Label that the node must have; may be repeated",
       .group = k_container_group},
      {.key = "tolerations",
       .flags = "--toleration",
       .member = &JobSpec::tolerations,
       .metavar = "KEY[=VALUE][:EFFECT]",
       .help = "Taint that the node may have; may be repeated",
       .group = k_container_group},
      {.key = "data",
       .flags = "-d,--data",
       .member = &JobSpec::data,
       .metavar = "CLAIM:/PATH",
       .help = "Persistent volume claim to mount; may be repeated",
       .group = k_container_group},
      {.key = "dataDirs",
       .flags = "--data-dir",
       .member = &JobSpec::data_dirs,
       .metavar = "/NODE/PATH:/PATH",
       .help = "Folder of the node to mount; may be repeated",
       .group = k_container_group},
      {.key = "queue",
       .flags = "--queue",
       .member = &JobSpec::queue,
       .metavar = "NAME",
       .help = "Kueue's LocalQueue that admits the job",
       .group = k_container_group},
      {.key = "runningTimeout",
       .flags = "--running-timeout",
       .member = &JobSpec::running_timeout_ms,
       .metavar = "TIME",
       .help = "End the job after this long (default: never)",
       .group = k_container_group,
       .minimum = 0,
       .maximum = INT32_MAX,
       .duration = true},
      {.key = "ttlAfterFinished",
       .flags = "--ttl-after-finished",
       .member = &JobSpec::ttl_after_finished_ms,
       .metavar = "TIME",
       .help = "Delete the job so long after its end (default: never)",
       .group = k_container_group,
       .minimum = -1,
       .maximum = INT32_MAX,
       .duration = true},
      {.key = "runAsUser",
       .flags = "--run-as-user",
       .member = &JobSpec::run_as_user,
       .metavar = "UID",
       .help = "User of the ranks' processes; 0, root, is refused where Pods are restricted "
               "(default: 1000)",
       .group = k_container_group,
       .minimum = 0,
       .maximum = INT32_MAX},
      {.key = "command",
       .flags = "",
       .member = &JobSpec::command,
       .metavar = "",
       .help = "The command that every rank runs, a word an item",
       .group = "Job"},
  };
  return all;
}

bool is_default(const JobSpec& job, const JobField& field) {
  static const JobSpec defaults;
  return std::visit([&](auto member) { return job.*member == defaults.*member; }, field.member);
}

bool is_in_job_file(const JobSpec& job, const JobField& field) {
  return field.group != std::string_view(k_container_group) || !is_default(job, field);
}

std::vector<Option> job_options(JobSpec& job, const std::vector<std::string>& backends) {
  std::vector<Option> options;
  for (const JobField& field : job_fields()) {
    if (*field.flags == '\0') {
      continue;
    }
    const OptionTarget target =
        std::visit([&](auto member) { return OptionTarget(&(job.*member)); }, field.member);
    options.push_back({.flags = field.flags,
                       .target = target,
                       .metavar = field.metavar,
                       .help = field.help,
                       .group = field.group,
                       .complete = field.complete,
                       .minimum = field.minimum,
                       .maximum = field.maximum,
                       .env = field.env,
                       .duration = field.duration});
    if (std::strcmp(field.key, "backend") == 0) {
      options.back().choices = backends;
    }
  }
  return options;
}

} // namespace dtrain
