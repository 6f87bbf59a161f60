#include "submit/fields/arena.h"

#include "submit/fields/job_fields.h"
#include "submit/options/man_page.h"

#include <fmt/format.h>

namespace dtrain {
namespace {

struct Refused {
  const char* flag;
  bool takes_value;
  const char* reason;
};

const std::vector<Refused>& refused_flags() {
  static const std::vector<Refused> all = {
      {"--arena-namespace", true, "there is no Arena in the cluster to find; leave it out"},
      {"--gputopology", false, "GPUs are not placed by their links; leave it out"},
      {"--helm-binary", false, "no Helm is called; leave it out"},
      {"--job-restart-policy", true, "a gang is restarted as a whole: say --max-restarts=N"},
      {"--loglevel", true, "errors and notices are all there is to see; leave it out"},
      {"--max-wait-time", true, "nothing waits for nodes to come; say --starting-timeout=TIME"},
      {"--model-name", true, "no models are registered; leave it out"},
      {"--model-source", true, "no models are registered; leave it out"},
      {"--pprof", false, "dtrain has no profile of itself to give; leave it out"},
      {"--ps-affinity-constraint", true, "roles have no affinity; say --ps-selector=KEY=VALUE"},
      {"--ps-affinity-policy", true, "roles have no affinity; say --ps-selector=KEY=VALUE"},
      {"--spot-instance", false, "say --preemptible"},
      {"--ssh-port", true, "a launcher reaches its workers at a port that dtrain chooses"},
      {"--ssh-secret", true, "each job has a key made for it alone"},
      {"--trace", false, "dtrain has no trace of itself to give; leave it out"},
      {"--worker-affinity-constraint", true,
       "roles have no affinity; say --worker-selector=KEY=VALUE"},
      {"--worker-affinity-policy", true, "roles have no affinity; say --worker-selector=KEY=VALUE"},
      {"--worker-restart-policy", true, "a gang is restarted as a whole: say --max-restarts=N"},
  };
  return all;
}

/// What a flag asks for that is always so.
constexpr const char* k_mounts_on_launcher = "--mounts-on-launcher";
constexpr const char* k_always = "a launcher always has its workers' mounts";

/// "Backends: a, b."; empty for a flag that is no field of a job.
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

std::vector<Option> arena_options() {
  static std::string no_value;
  static bool no_switch = false;
  std::vector<Option> options;
  for (const Refused& refused : refused_flags()) {
    options.push_back({.flags = refused.flag,
                       .target = refused.takes_value ? OptionTarget(&no_value) : &no_switch,
                       .help = refused.reason,
                       .refusal = refused.reason});
  }
  options.push_back(
      {.flags = k_mounts_on_launcher, .target = &no_switch, .help = k_always, .hidden = true});
  return options;
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
      "A line written for Arena v0.15 runs with\n.Ic dtrain\nin the place of\n.Ic arena ,\n"
      "the command as one string at its end included.\n"
      "Each flag of its\n.Ic tfjob , pytorchjob , mpijob , horovodjob , etjob\nand\n"
      ".Ic deepspeedjob\nmeans the same here, or is refused by name with the reason; none is "
      "dropped in silence.\nA backend that cannot do what a flag asks for refuses it too.\n"
      "Defaults are Arena's, a tfjob's success policy among them: the chief, or worker 0 where "
      "there "
      "is none, decides.\nThey differ in two: a job is started anew only where\n"
      ".Fl \\-max\\-restarts\nsays so, and an image is pulled as the cluster's own rules say.\n"
      ".Sh FLAGS\n.Bl -tag -width Ds\n",
      context.date, context.version);
  for (const std::string& flag : arena_flags()) {
    const Option* option = table.find(flag);
    if (option == nullptr) {
      continue;
    }
    out += fmt::format(".It Fl {}\n", man_text(flag.substr(1)));
    if (!option->refusal.empty()) {
      out += fmt::format("Refused: {}.\n", man_text(option->refusal));
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
