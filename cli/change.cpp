#include "cli/commands.h"
#include "cli/target.h"
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
      .summary = "End the ranks of jobs, and keep the jobs",
      .description = "Ends every rank of the jobs named and keeps the jobs, so that others can "
                     "have their GPUs: a suspended job is QUEUING, holds nothing, and outlives a "
                     "restart of the machine. 'dtrain resume' starts the ranks anew; what they go "
                     "on from is their last checkpoint (the bundled trainer with --resume). The "
                     "ranks are sent SIGTERM, and SIGKILL "
                     "after --grace-period.",
      .examples = {"dtrain suspend mnist", "dtrain suspend mnist -b kubernetes"},
      .options = {jobs_argument(options.names)}};
  add_target(table, options.target);
  return table;
}

CommandTable resume_table(ChangeOptions& options) {
  CommandTable table = {.name = "resume",
                        .summary = "Start suspended jobs again",
                        .description =
                            "Starts the ranks of suspended jobs anew, with the environment that "
                            "they were submitted in and GPUs that are free now. Their logs go on. "
                            "--running-timeout counts from here.",
                        .examples = {"dtrain resume mnist"},
                        .options = {jobs_argument(options.names)}};
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
                     "--max-workers. A suspended job is resumed with so many.",
      .examples = {"dtrain scale mnist --workers=5"},
      .options = {job_argument(options.name),
                  {.flags = "--workers",
                   .target = &options.workers,
                   .metavar = "N",
                   .help = "Workers from now on",
                   .minimum = 1,
                   .maximum = k_max_workers,
                   .required = true}}};
  add_target(table, options.target);
  return table;
}

int change(Context& context, const ChangeOptions& options, void (Backend::*verb)(const JobRef&),
           std::string_view done) {
  const Target target = open_target(context, options.target);
  for (const auto& name : options.names) {
    (target.backend.get()->*verb)(target.job(name));
    context.out.write(fmt::format("job/{} {}\n", name, done));
  }
  return 0;
}

int run_suspend(Context& context, const ChangeOptions& options) {
  return change(context, options, &Backend::suspend, "suspended");
}

int run_resume(Context& context, const ChangeOptions& options) {
  return change(context, options, &Backend::resume, "resumed");
}

int run_scale(Context& context, const ScaleOptions& options) {
  const Target target = open_target(context, options.target);
  target.backend->scale(target.job(options.name), options.workers);
  context.out.write(fmt::format("job/{} scaled to {} worker{}\n", options.name, options.workers,
                                options.workers == 1 ? "" : "s"));
  return 0;
}

} // namespace

Invocation suspend_command() { return bind(suspend_table, run_suspend); }
Invocation resume_command() { return bind(resume_table, run_resume); }
Invocation scale_command() { return bind(scale_table, run_scale); }

} // namespace dtrain
