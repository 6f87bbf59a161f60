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
       .help = "Namespace of the job (default: default)",
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
      {.key = "command",
       .flags = "",
       .member = &JobSpec::command,
       .metavar = "",
       .help = "The command that every rank runs, a word an item",
       .group = "Job"},
  };
  return all;
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
