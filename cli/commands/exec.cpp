#include "cli/commands.h"
#include "cli/target.h"
#include "submit/errors.h"

#include <fmt/format.h>

#include <algorithm>

namespace dtrain {
namespace {

struct ExecOptions {
  std::string name;
  std::vector<std::string> instances; ///< At most one.
  std::vector<std::string> command;
  std::vector<std::string> words; ///< Arena's form of it, without --.
  std::string container;          ///< Said, and always the program's.
  bool tty = false;               ///< Said, and always so.
  TargetOptions target;
};

CommandTable exec_options(ExecOptions& options, CommandTable table) {
  table.options = {job_argument(&options.name),
                   instance_argument(&options.instances),
                   container_argument(&options.container),
                   {.flags = "-t,--tty",
                    .target = &options.tty,
                    .help = "Not needed; a terminal is used if there is one",
                    .hidden = true}};
  options.target.needs = Ability::exec;
  add_target(table, options.target);
  table.takes_command = true;
  table.rest = &options.command;
  return table;
}

CommandTable exec_table(ExecOptions& options) {
  return exec_options(
      options,
      {.name = "exec",
       .summary = "Run a command in a running job",
       .description = "Runs COMMAND beside an instance of a running job, with its environment and "
                      "in its folder, on this terminal, and exits with COMMAND's exit code. -it is "
                      "accepted but not needed.",
       .examples = {"dtrain exec mnist -- nvidia-smi", "dtrain exec mnist -i worker-1 -- env"}});
}

CommandTable attach_table(ExecOptions& options) {
  CommandTable table = exec_options(
      options, {.name = "attach",
                .summary = "Open a shell in a running job",
                .description = "Opens a shell, or runs COMMAND, beside an instance of a running "
                               "job, with its environment and in its folder.",
                .examples = {"dtrain attach mnist", "dtrain attach mnist -i ps-0 -- bash"}});
  table.options.insert(table.options.begin() + 1, {.flags = "COMMAND",
                                                   .target = &options.words,
                                                   .help = "What to run instead of a shell",
                                                   .positional = true});
  return table;
}

int run_exec(Context& context, const ExecOptions& options) {
  if (options.command.empty()) {
    throw UsageError("give the command after --, as in dtrain exec NAME -- ls");
  }
  const Target target = open_target(context, options.target);
  const JobStatus job = target.status(options.name);
  const std::string instance = chosen_instance(job, options.instances);
  if (is_final(job.phase)) {
    throw EngineError(fmt::format("job {} has ended ({}); nothing to exec into",
                                  printable(options.name), phase_name(job.phase)));
  }
  context.out.flush();
  return target.backend->exec(target.job(options.name), instance, options.command);
}

int run_attach(Context& context, const ExecOptions& options) {
  ExecOptions shell = options;
  if (shell.command.empty()) {
    shell.command = shell.words.empty() ? std::vector<std::string>{"sh"} : shell.words;
  }
  return run_exec(context, shell);
}

/// -it as other tools have it, whose -i is not ours.
Invocation takes_it(Invocation invocation) {
  invocation.parse = [](const Context&, const CommandTable& table, std::vector<std::string> args) {
    const auto end = std::find(args.begin(), args.end(), "--");
    args.erase(std::remove_if(args.begin(), end,
                              [](const std::string& arg) {
                                return arg == "-it" || arg == "-ti" || arg == "--stdin";
                              }),
               end);
    return parse_options(table, args);
  };
  return invocation;
}

} // namespace

Invocation exec_command() { return takes_it(bind(exec_table, run_exec)); }
Invocation attach_command() { return takes_it(bind(attach_table, run_attach)); }

} // namespace dtrain
