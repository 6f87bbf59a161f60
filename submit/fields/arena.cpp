#include "submit/fields/arena.h"

#include "submit/errors.h"
#include "submit/fields/job_fields.h"
#include "submit/options/man_page.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>

namespace dtrain {
namespace {

/// Taken, with a line that says why there is nothing to do.
struct Idle {
  const char* flag;
  bool takes_value;
  const char* notice;
  const char* key = nullptr; ///< In job files, where it was a field in 0.1.
};

const std::vector<Idle>& global_flags() {
  static const std::vector<Idle> all = {
      {"--arena-namespace", true, "not needed: there is no operator to find"},
      {"--loglevel", true, "not needed: errors and notices are all that is logged"},
      {"--pprof", false, "dtrain does not profile itself"},
      {"--trace", false, "dtrain does not trace itself"},
  };
  return all;
}

const std::vector<Idle>& idle_flags() {
  static const std::vector<Idle> all = {
      {"--autoscaler-cpu", true, "not used: Ray's cluster is as large as the job"},
      {"--autoscaler-memory", true, "not used: Ray's cluster is as large as the job"},
      {"--enable-autoscaling", false, "not used: Ray's cluster is as large as the job"},
      {"--gputopology", false, "not used: dtrain does not place GPUs by their links"},
      {"--head-cpu", true, "not used: Ray's head runs beside the first worker"},
      {"--head-gpu", true, "not used: Ray's head runs beside the first worker"},
      {"--head-image", true, "not used: Ray's head runs beside the first worker"},
      {"--head-memory", true, "not used: Ray's head runs beside the first worker"},
      {"--head-service-type", true, "not used: Ray's head is reached by the job's own service"},
      {"--helm-binary", false, "not needed: Helm is not called"},
      {"--max-wait-time", true, "not used: no backend limits how long a job waits to start"},
      {"--model-name", true, "not used: models are not registered"},
      {"--model-source", true, "not used: models are not registered"},
      {"--mounts-on-launcher", false, "not needed: a launcher has its workers' mounts"},
      {"--pre-stop-command", true, "not needed: Ray ends with the job"},
      {"--ray-version", true, "not needed: Ray is the image's own"},
      {"--shutdown-after-finished", false, "not needed: Ray ends with the job"},
      {"--ssh-port", true, "not needed: dtrain chooses the port"},
      {"--ssh-secret", true, "not needed: each job gets a key of its own"},
      {"--starting-timeout", true, "not used: no backend limits how long a job waits to start",
       "startingTimeout"},
      {"--task-port", true, "not needed: instances reach each other on any port"},
  };
  return all;
}

Option idle_option(const Idle& idle, ArenaFlags& flags) {
  return {.flags = idle.flag,
          .target = idle.takes_value ? OptionTarget(&flags.ignored) : &flags.ignored_switch,
          .help = idle.notice,
          .notice = idle.notice};
}

/// What Arena's affinity policies set.
constexpr Member<std::vector<std::string>> k_topology_spread = {.key = "topologySpread"};
constexpr Member<bool> k_binpack = {.key = "binpack"};

/// Restarts of a job that is restarted but does not say how often.
constexpr int k_arena_restarts = 6;

Option policy_option(const char* flag, std::string& target, const char* help,
                     std::vector<std::string> choices) {
  return {.flags = flag,
          .target = &target,
          .metavar = "POLICY",
          .help = help,
          .choices = std::move(choices),
          .hidden = true};
}

/// The value of the last "KEY=VALUE" of `env` with that key.
std::string variable(const std::vector<std::string>& env, std::string_view key) {
  std::string value;
  for (const std::string& entry : env) {
    if (entry.starts_with(key) && entry.substr(key.size()).starts_with('=')) {
      value = entry.substr(key.size() + 1);
    }
  }
  return value;
}

/// "Backends: a, b."; empty for a flag that is not a field of a job.
std::string backends_line(const Option& option, const FieldBackends& backends) {
  for (const JobField& field : job_fields()) {
    if (field.flags == option.flags) {
      const std::string names = backends(field.key);
      return fmt::format("Backends: {}.\n", names.empty() ? "none yet" : names);
    }
  }
  return "";
}

} // namespace

bool is_idle_key(std::string_view key) {
  return std::any_of(idle_flags().begin(), idle_flags().end(),
                     [&](const Idle& idle) { return idle.key != nullptr && key == idle.key; });
}

std::vector<Option> arena_global_options(ArenaFlags& flags) {
  std::vector<Option> options;
  for (const Idle& idle : global_flags()) {
    options.push_back(idle_option(idle, flags));
  }
  return options;
}

std::vector<Option> arena_options(ArenaFlags& flags) {
  std::vector<Option> options = arena_global_options(flags);
  for (const Idle& idle : idle_flags()) {
    options.push_back(idle_option(idle, flags));
  }
  const std::vector<std::string> restarts = {"Always", "OnFailure", "ExitCode", "Never"};
  const std::vector<std::string> affinity = {"none", "spread", "binpack"};
  const std::vector<std::string> constraint = {"preferred", "required"};
  const char* restarts_help =
      "Never means --max-restarts=0; all others restart the whole job up to six times, or as "
      "--job-backoff-limit says";
  const char* affinity_help = "spread means --topology-spread=node, binpack --binpack";
  const char* constraint_help = "required adds :required to --topology-spread";
  const char* ps_help = "Accepted but not used; choose nodes with --ps-selector";
  for (Option& option : std::vector<Option>{
           policy_option("--job-restart-policy", flags.job_restart_policy, restarts_help, restarts),
           policy_option("--worker-restart-policy", flags.worker_restart_policy, restarts_help,
                         restarts),
           policy_option("--worker-affinity-policy", flags.worker_affinity_policy, affinity_help,
                         affinity),
           policy_option("--worker-affinity-constraint", flags.worker_affinity_constraint,
                         constraint_help, constraint),
           policy_option("--ps-affinity-policy", flags.ps_affinity_policy, ps_help, affinity),
           policy_option("--ps-affinity-constraint", flags.ps_affinity_constraint, ps_help,
                         constraint)}) {
    options.push_back(std::move(option));
  }
  return options;
}

void refuse_misread(const std::vector<std::string>& args) {
  for (std::size_t i = 0; i < args.size() && args[i] != "--"; ++i) {
    if (args[i] == "-np") { // A namespace 'p'.
      throw UsageError(
          "-np: use --workers=N; flags of the command go after --, as in -- mpirun -np 4 COMMAND");
    }
    if (args[i] == "-n" && i + 1 < args.size() && !args[i + 1].empty() &&
        args[i + 1].find_first_not_of("0123456789") == std::string::npos) {
      throw UsageError(fmt::format("-n {0}: -n means --namespace; use --workers={0} for {0} "
                                   "workers, or --namespace={0} for a namespace of that name",
                                   args[i + 1]));
    }
    if (args[i] == "-x" && (i == 0 || args[i - 1] != "--sbatch-arg")) {
      throw UsageError("-x: use --exclude-hosts=HOSTS to skip hosts, --exclude=NODES to skip nodes "
                       "of a queue, --env=NAME=VALUE to set a variable");
    }
    for (const std::string flag : {"--sync-mode", "--syncMode"}) {
      if (args[i] == flag + "=rsync" ||
          (args[i] == flag && i + 1 < args.size() && args[i + 1] == "rsync")) {
        throw UsageError("--sync-mode=rsync is not supported: --sync-mode=local "
                         "--sync-source=DIR sends a local folder, --data mounts a shared one");
      }
    }
  }
}

std::string arena_command(const std::vector<std::string>& words) {
  std::string command = fmt::format("{}", fmt::join(words, " "));
  if (command.size() > 2 && command.front() == '\'' &&
      command.find('\'', 1) == command.size() - 1) {
    command = command.substr(1, command.size() - 2);
  }
  std::vector<std::string> lines;
  bool is_one_command = false;
  std::istringstream text(command);
  for (std::string line; std::getline(text, line);) {
    const std::size_t begin = line.find_first_not_of(" \t");
    is_one_command |= !lines.empty() && begin != std::string::npos && line[begin] == '-';
    lines.push_back(begin == std::string::npos ? "" : line.substr(begin));
  }
  return is_one_command ? fmt::format("{}", fmt::join(lines, " ")) : command;
}

void add_arena_variables(const std::string& command, JobSpec& job) {
  constexpr int k_arenas_most_workers = 1000;
  for (const auto& [name, value] :
       {std::pair("workers", job.workers), std::pair("gpus", job.gpus),
        std::pair("minWorkers", std::max(job.min_workers, 1)),
        std::pair("maxWorkers", job.max_workers > 0 ? job.max_workers : k_arenas_most_workers)}) {
    if (command.find(fmt::format("${{{}}}", name)) != std::string::npos &&
        variable(job.env, name).empty()) {
      job.env.push_back(fmt::format("{}={}", name, value));
    }
  }
}

std::vector<std::string> apply_arena(const ArenaFlags& flags, JobSpec& job) {
  std::vector<std::string> notices;
  for (const auto& [flag, policy] :
       {std::pair("--job-restart-policy", &flags.job_restart_policy),
        std::pair("--worker-restart-policy", &flags.worker_restart_policy)}) {
    if (*policy == "Never") {
      job.max_restarts = 0;
    } else if (!policy->empty()) {
      job.max_restarts = job.max_restarts == 0 ? k_arena_restarts : job.max_restarts;
      notices.push_back(fmt::format("{}={}: the whole job is restarted after a failure, up to {} "
                                    "times (--max-restarts)",
                                    flag, *policy, job.max_restarts));
    }
  }
  const bool required = flags.worker_affinity_constraint == "required";
  if (flags.worker_affinity_policy == "spread") {
    k_topology_spread(job).emplace_back(required ? "node:required" : "node");
  } else if (flags.worker_affinity_policy == "binpack") {
    k_binpack(job) = true;
  }
  if (!flags.ps_affinity_policy.empty() && flags.ps_affinity_policy != "none") {
    if (flags.ps_affinity_constraint == "required") {
      throw UsageError("--ps-affinity-constraint=required: dtrain does not place parameter servers "
                       "by affinity; use --ps-selector=KEY=VALUE");
    }
    notices.emplace_back(
        "--ps-affinity-policy: not used; choose nodes with --ps-selector=KEY=VALUE");
  }
  if (job.sync_mode == k_sync_git) {
    const std::string branch = variable(job.env, "GIT_SYNC_BRANCH");
    const std::size_t path = job.sync_source.rfind('/');
    const bool has_ref =
        job.sync_source.find('@', path == std::string::npos ? 0 : path) != std::string::npos;
    if (!branch.empty() && !has_ref) {
      job.sync_source += "@" + branch;
    }
    if (const std::string user = variable(job.env, "GIT_SYNC_USERNAME");
        !user.empty() && job.sync_user.empty()) {
      job.sync_user = user;
    }
    if (!variable(job.env, "GIT_SYNC_PASSWORD").empty()) {
      notices.emplace_back("GIT_SYNC_PASSWORD: not used, since anyone can read a command line: "
                           "pass the token by DTRAIN_GIT_TOKEN or --sync-token-file");
    }
  }
  return notices;
}

const std::vector<std::string>& arena_flags() {
  static const std::vector<std::string> all = {
      "--annotation",
      "--arena-namespace",
      "--chief",
      "--chief-cpu",
      "--chief-cpu-limit",
      "--chief-memory",
      "--chief-memory-limit",
      "--chief-port",
      "--chief-selector",
      "--clean-task-policy",
      "--config",
      "--config-file",
      "--cpu",
      "--data",
      "--data-dir",
      "--device",
      "--env",
      "--evaluator",
      "--evaluator-cpu",
      "--evaluator-cpu-limit",
      "--evaluator-memory",
      "--evaluator-memory-limit",
      "--evaluator-selector",
      "--gang",
      "--gpus",
      "--gputopology",
      "--helm-binary",
      "--hostIPC",
      "--hostNetwork",
      "--hostPID",
      "--image",
      "--image-pull-policy",
      "--image-pull-secret",
      "--job-backoff-limit",
      "--job-restart-policy",
      "--label",
      "--launcher-annotation",
      "--launcher-selector",
      "--logdir",
      "--loglevel",
      "--max-wait-time",
      "--max-workers",
      "--memory",
      "--min-available",
      "--min-workers",
      "--model-name",
      "--model-source",
      "--mounts-on-launcher",
      "--name",
      "--namespace",
      "--nproc-per-node",
      "--pprof",
      "--priority",
      "--ps",
      "--ps-affinity-constraint",
      "--ps-affinity-policy",
      "--ps-cpu",
      "--ps-cpu-limit",
      "--ps-gpus",
      "--ps-image",
      "--ps-memory",
      "--ps-memory-limit",
      "--ps-port",
      "--ps-selector",
      "--queue",
      "--rdma",
      "--retry",
      "--role-sequence",
      "--running-timeout",
      "--scheduler",
      "--scheduler-name",
      "--selector",
      "--share-memory",
      "--shell",
      "--spot-instance",
      "--ssh-port",
      "--ssh-secret",
      "--starting-timeout",
      "--success-policy",
      "--sync-image",
      "--sync-mode",
      "--sync-source",
      "--task-cpu",
      "--task-images",
      "--task-memory",
      "--task-name",
      "--task-port",
      "--task-replicas",
      "--tensorboard",
      "--tensorboard-image",
      "--toleration",
      "--trace",
      "--ttl-after-finished",
      "--worker-affinity-constraint",
      "--worker-affinity-policy",
      "--worker-annotation",
      "--worker-cpu",
      "--worker-cpu-limit",
      "--worker-image",
      "--worker-memory",
      "--worker-memory-limit",
      "--worker-port",
      "--worker-restart-policy",
      "--worker-selector",
      "--workers",
      "--working-dir",
  };
  return all;
}

std::string man_arena(const ManContext& context, const CommandTable& table,
                      const FieldBackends& backends) {
  std::string out = fmt::format(
      ".\\\" Made from the option tables; edits here are lost.\n"
      ".Dd {}\n.Dt DTRAIN-ARENA 7\n.Os dtrain {}\n"
      ".Sh NAME\n.Nm dtrain-arena\n.Nd Arena's command lines with dtrain\n"
      ".Sh DESCRIPTION\n"
      "A command line written for Arena v0.15 works with\n.Ic dtrain\nin place of\n.Ic arena ,\n"
      "including the command given as one string at the end.\n"
      "Every flag of its\n.Ic tfjob , pytorchjob , mpijob , horovodjob , etjob , deepspeedjob , "
      "rayjob\n"
      "and\n.Ic volcanojob\neither means the same here, or is accepted with a one-line notice "
      "that says why it has no effect.\n"
      "A backend that cannot do what a flag asks for refuses the job.\n"
      "Older spellings "
      "(\n.Fl \\-workerImage ,\n.Fl \\-syncMode )\nand the short types\n"
      ".Ic tf , pytorch , mpi , horovod , et , deepspeed , ray\nand\n.Ic volcano\nalso work.\n"
      "Defaults are Arena's, including a tfjob's success policy: the chief decides, or worker 0 if "
      "there is no chief.\nTwo defaults differ: a job is restarted only if\n"
      ".Fl \\-max\\-restarts\nsays so, and images are pulled by the cluster's own rules.\n"
      ".Pp\nThe command string is read as by Arena, which passes it through YAML: quotes around "
      "all "
      "of it are removed, and lines are joined if one of them begins with a flag.\n"
      "It may use\n.Ev ${{workers}} , ${{gpus}} , ${{minWorkers}}\nand\n.Ev ${{maxWorkers}} .\n"
      ".Pp\nThe command starts in the repository that\n.Fl \\-sync\\-mode=git\nbrings, which is "
      "also found at Arena's path,\n.Pa code/NAME .\n"
      ".Pp\nIn a cluster a volcanojob's tasks run as Jobs of one PodGroup, which Volcano "
      "schedules; without a command, each task runs its image's own program.\n"
      "On this machine the command runs as every instance of every task.\n"
      ".Pp\nArena's other commands for training jobs work too:\n"
      ".Ic attach , data list , delete , get , list , logs , prune , scalein , scaleout , top .\n"
      ".Ic sparkjob , serve , model , evaluate , cron\nand\n.Ic logviewer\nare refused with a line "
      "that says what to use instead.\n"
      ".Sh FLAGS\n.Bl -tag -width Ds\n",
      context.date, context.version);
  for (const std::string& flag : arena_flags()) {
    const Option* option = table.find(flag);
    if (option == nullptr) {
      continue;
    }
    out += fmt::format(".It Fl {}\n", man_text(flag.substr(1)));
    if (!option->notice.empty()) {
      out += fmt::format("Accepted; {}.\n", man_text(option->notice));
      continue;
    }
    if (option->long_flag() != flag) {
      out += fmt::format("The same as\n.Fl {} .\n", man_text(option->long_flag().substr(1)));
    }
    out += man_text(option->help) + ".\n";
    out += backends_line(*option, backends);
  }
  return out + ".El\n.Sh EXAMPLES\n.Bd -literal\n"
               "dtrain submit etjob \\-\\-name=bert \\-\\-gpus=1 \\-\\-workers=3 \\e\n"
               "  \"deepspeed /workspace/train_bert_ds.py\"\n.Ed\n"
               ".Sh SEE ALSO\n.Xr dtrain-submit 1 ,\n.Xr dtrain-environment 7\n";
}

} // namespace dtrain
