#include "cli/commands.h"
#include "cli/target.h"
#include "submit/errors.h"

#include <fmt/format.h>

namespace dtrain {
namespace {

struct ExecOptions {
  std::string name;
  std::string instance;
  std::vector<std::string> command;
  TargetOptions target;
};

CommandTable exec_options(ExecOptions& options, CommandTable table) {
  table.options = {job_argument(options.name),
                   {.flags = "-i,--instance",
                    .target = &options.instance,
                    .metavar = "NAME",
                    .help = "The instance (default: the chief)",
                    .complete = Complete::instance}};
  add_target(table, options.target);
  table.takes_command = true;
  table.rest = &options.command;
  return table;
}

CommandTable exec_table(ExecOptions& options) {
  return exec_options(
      options,
      {.name = "exec",
       .summary = "Run a command beside an instance",
       .description = "Runs CMD where an instance of a running job runs, with its variables and "
                      "in its folder, and exits with CMD's exit code.",
       .examples = {"dtrain exec mnist -- nvidia-smi", "dtrain exec mnist -i worker-1 -- env"}});
}

CommandTable attach_table(ExecOptions& options) {
  return exec_options(
      options, {.name = "attach",
                .summary = "Open a shell beside an instance",
                .description = "Opens a shell, or runs CMD, where an instance of a running job "
                               "runs: with its variables, in its folder.",
                .examples = {"dtrain attach mnist", "dtrain attach mnist -i ps-0 -- bash"}});
}

int run_exec(Context& context, const ExecOptions& options) {
  if (options.command.empty()) {
    throw UsageError("give the command after --, as in dtrain exec NAME -- ls");
  }
  const Target target = open_target(context, options.target);
  const JobStatus job = target.status(options.name);
  std::string instance;
  for (const auto& each : job.instances) {
    instance = instance.empty() && each.is_chief ? each.name : instance;
  }
  if (!options.instance.empty()) {
    instance = instance_named(job, options.instance);
  }
  context.out.flush();
  return target.backend->exec(target.job(options.name), instance, options.command);
}

int run_attach(Context& context, const ExecOptions& options) {
  ExecOptions shell = options;
  if (shell.command.empty()) {
    shell.command = {"sh"};
  }
  return run_exec(context, shell);
}

} // namespace

Invocation exec_command() { return bind(exec_table, run_exec); }
Invocation attach_command() { return bind(attach_table, run_attach); }

} // namespace dtrain
