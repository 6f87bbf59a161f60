#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/job_logs.h"
#include "cli/output/log_printer.h"
#include "cli/output/time.h"
#include "cli/target.h"
#include "submit/errors.h"

#include <fmt/format.h>

namespace dtrain {
namespace {

struct LogsOptions {
  std::string name;
  std::string since;
  bool timestamps = false;
  LogQuery query;
  TargetOptions target;
};

CommandTable logs_table(LogsOptions& options) {
  CommandTable table = {
      .name = "logs",
      .summary = "Print what a job's instances wrote",
      .description =
          "Prints the output of all instances in order of time, each line with its instance's "
          "name, or of one with -i. With -f it waits for the job to start and ends when the job "
          "does; Ctrl-C stops only the printing.",
      .examples = {"dtrain logs mnist -f", "# The last ten lines of one worker",
                   "dtrain logs mnist -i worker-1 --tail=10", "# The run before the last restart",
                   "dtrain logs mnist --prev"},
      .options = {job_argument(options.name),
                  {.flags = "-i,--instance",
                   .target = &options.query.instance,
                   .metavar = "NAME",
                   .help = "Only this instance, without its name before each line",
                   .complete = Complete::instance},
                  {.flags = "-f,--follow",
                   .target = &options.query.follow,
                   .help = "Go on until the job ends"},
                  {.flags = "--tail",
                   .target = &options.query.tail,
                   .metavar = "N",
                   .help = "Only the last N lines of each instance (default: all)",
                   .minimum = 0},
                  {.flags = "--since",
                   .target = &options.since,
                   .metavar = "TIME",
                   .help = "Only lines newer than 5m, 1h30m, or 2026-01-31T18:00:00Z"},
                  {.flags = "--timestamps",
                   .target = &options.timestamps,
                   .help = "Begin each line with its time"},
                  {.flags = "--prev",
                   .target = &options.query.previous,
                   .help = "The run before the last restart"}}};
  add_target(table, options.target);
  return table;
}

int run_logs(Context& context, const LogsOptions& options) {
  LogQuery query = options.query;
  if (!options.since.empty()) {
    query.since = parse_since("--since", options.since, context.now());
  }
  const Target target = open_target(context, options.target);
  const JobStatus job = target.status(options.name);
  if (!query.instance.empty()) {
    query.instance = instance_named(job, query.instance);
  }
  if (query.previous && job.restarts == 0) {
    throw NotFound(
        fmt::format("--prev: job '{}' has not been restarted; it has one run only", job.name));
  }
  if (!query.follow) {
    print_logs(context, target, job, query, options.timestamps);
    return 0;
  }
  query.on_wait = [&](const std::string& why) {
    context.note(fmt::format("job/{} waits: {}", job.name, why));
  };
  const DetachOnInterrupt detach(
      fmt::format("dtrain logs: stopped following; job/{} goes on", job.name));
  print_logs(context, target, job, query, options.timestamps);
  return 0;
}

} // namespace

void print_logs(Context& context, const Target& target, const JobStatus& job, const LogQuery& query,
                bool timestamps) {
  std::vector<std::string> names;
  names.reserve(job.instances.size());
  for (const auto& instance : job.instances) {
    names.push_back(instance.name);
  }
  LogPrinter printer(context.out, names,
                     {.prefix = query.instance.empty() && names.size() > 1,
                      .timestamps = timestamps,
                      .flush_lines = query.follow});
  target.backend->logs({job.namespace_name, job.name}, query, [&](const LogLine& line) {
    printer.print(line);
    return true;
  });
  printer.finish();
}

Invocation logs_command() { return bind(logs_table, run_logs); }

} // namespace dtrain
