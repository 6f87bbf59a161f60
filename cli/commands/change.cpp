#include "cli/commands.h"
#include "cli/exit_codes.h"
#include "cli/target.h"
#include "submit/errors.h"
#include "submit/job_spec.h"

#include <fmt/format.h>

namespace dtrain {
namespace {

struct ChangeOptions {
  std::vector<std::string> names;
  TargetOptions target;
};

struct ScaleOptions {
  std::string name;
  int workers = 0;
  TargetOptions target;
};

CommandTable suspend_table(ChangeOptions& options) {
  CommandTable table = {
      .name = "suspend",
      .summary = "Stop jobs, keeping them to resume later",
      .description = "Stops every rank of the jobs named and keeps the jobs, so that others can "
                     "have their GPUs. A suspended job holds nothing and survives a reboot. "
                     "'dtrain resume' starts its ranks again; they go on from their last "
                     "checkpoint (the bundled trainer with --resume). The ranks are sent SIGTERM, "
                     "and SIGKILL after --grace-period.",
      .examples = {"dtrain suspend mnist", "dtrain suspend mnist --profile=cluster"},
      .options = {job_argument(&options.names, "A job to suspend")}};
  options.target.needs = Ability::suspend;
  add_target(table, options.target);
  return table;
}

CommandTable resume_table(ChangeOptions& options) {
  CommandTable table = {.name = "resume",
                        .summary = "Start suspended jobs again",
                        .description =
                            "Starts the ranks of suspended jobs again, with the environment that "
                            "they were submitted in and GPUs that are free now. Their logs go on. "
                            "--running-timeout counts from here.",
                        .examples = {"dtrain resume mnist"},
                        .options = {job_argument(&options.names, "A job to resume")}};
  options.target.needs = Ability::suspend;
  add_target(table, options.target);
  return table;
}

CommandTable scale_table(ScaleOptions& options) {
  CommandTable table = {
      .name = "scale",
      .summary = "Change the number of a running job's workers",
      .description = "Adds workers to a running job, or takes the last ones away. The others run "
                     "on and see the change in the host file; their program must know what to do "
                     "with it, as the bundled trainer and other elastic trainers do. On this "
                     "machine the job must have been submitted with --min-workers or "
                     "--max-workers. A suspended job starts with that many when it is resumed.",
      .examples = {"dtrain scale mnist --workers=5"},
      .options = {job_argument(&options.name),
                  {.flags = "--workers",
                   .target = &options.workers,
                   .metavar = "N",
                   .help = "New number of workers",
                   .minimum = 1,
                   .maximum = k_max_workers,
                   .required = true}}};
  table.check_words = [](const std::vector<std::string>& words) {
    if (words.size() == 2 && words[1].find_first_not_of("0123456789") == std::string::npos) {
      throw UsageError(fmt::format("give the number by --workers: dtrain scale {} --workers={}",
                                   printable(words[0]), words[1]));
    }
  };
  options.target.needs = Ability::scale;
  add_target(table, options.target);
  return table;
}

int change(Context& context, const ChangeOptions& options, bool (Backend::*verb)(const JobRef&),
           std::string_view done, std::string_view already) {
  const Target target = open_target(context, options.target);
  int status = k_exit_ok;
  for (const auto& name : options.names) {
    try {
      target.status(name); // Throws NotFound with a suggestion.
      if ((target.backend.get()->*verb)(target.job(name))) {
        context.out.write(fmt::format("job/{} {}\n", name, done));
      } else {
        context.note(fmt::format("job/{} is {}", name, already));
      }
    } catch (const Error& error) {
      // The others are still to be changed.
      context.complain(error.what());
      status = exit_code(error);
    }
  }
  return status;
}

int run_suspend(Context& context, const ChangeOptions& options) {
  return change(context, options, &Backend::suspend, "suspended", "suspended already");
}

int run_resume(Context& context, const ChangeOptions& options) {
  return change(context, options, &Backend::resume, "resumed", "not suspended");
}

/// Arena's: `scaleout etjob --name=x --count=1` adds to what there is.
struct ScaleByOptions {
  std::string type;
  std::string name;
  int count = 1;
  std::string ignored;
  std::vector<std::string> env;
  TargetOptions target;
};

template <bool out>
CommandTable scale_by_table(ScaleByOptions& options) {
  CommandTable table = {
      .name = out ? "scaleout" : "scalein",
      .summary = out ? "Add workers to a running job" : "Take workers away from a running job",
      .description = "Arena's form of 'dtrain scale': changes the number of workers by --count.",
      .examples = {out ? "dtrain scaleout etjob --name=mnist --count=1"
                       : "dtrain scalein etjob --name=mnist --count=1"},
      .options = {{.flags = "TYPE",
                   .target = &options.type,
                   .help = "The job's type; its name is enough",
                   .complete = Complete::job_type,
                   .positional = true},
                  {.flags = "--name",
                   .target = &options.name,
                   .metavar = "NAME",
                   .help = "The job's name",
                   .complete = Complete::job,
                   .required = true,
                   .read = read_job_name},
                  {.flags = "--count",
                   .target = &options.count,
                   .metavar = "N",
                   .help = "By how many (default: 1)",
                   .minimum = 1,
                   .maximum = k_max_workers}}};
  for (const char* flag : {"--retry", "-t,--timeout", "--script", "-e,--env"}) {
    table.options.push_back({.flags = flag,
                             .target = &options.ignored,
                             .help = "not needed: no script is called",
                             .notice = "not needed: no script is called"});
  }
  options.target.needs = Ability::scale;
  add_target(table, options.target);
  return table;
}

int scale_to(Context& context, const Target& target, const std::string& name, int workers) {
  target.backend->scale(target.job(name), workers);
  context.out.write(
      fmt::format("job/{} scaled to {} worker{}\n", name, workers, workers == 1 ? "" : "s"));
  return k_exit_ok;
}

template <bool out>
int run_scale_by(Context& context, const ScaleByOptions& options) {
  const Target target = open_target(context, options.target);
  target.status(options.name); // Throws NotFound with a suggestion.
  const int workers = target.backend->spec(target.job(options.name)).workers +
                      (out ? options.count : -options.count);
  if (workers < 1) {
    throw UsageError(fmt::format("--count={}: would leave {} workers, and a job needs at least one",
                                 options.count, workers));
  }
  return scale_to(context, target, options.name, workers);
}

int run_scale(Context& context, const ScaleOptions& options) {
  const Target target = open_target(context, options.target);
  target.status(options.name); // Throws NotFound with a suggestion.
  return scale_to(context, target, options.name, options.workers);
}

} // namespace

Invocation suspend_command() { return bind(suspend_table, run_suspend); }
Invocation resume_command() { return bind(resume_table, run_resume); }
Invocation scaleout_command() { return bind(scale_by_table<true>, run_scale_by<true>); }
Invocation scalein_command() { return bind(scale_by_table<false>, run_scale_by<false>); }
Invocation scale_command() { return bind(scale_table, run_scale); }

} // namespace dtrain
