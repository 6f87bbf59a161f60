#include "cli/commands.h"
#include "cli/commands/job_logs.h"
#include "cli/interrupt.h"
#include "cli/job_filter.h"
#include "cli/output/log_printer.h"
#include "cli/output/time.h"
#include "cli/target.h"
#include "submit/errors.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>

namespace dtrain {
namespace {

struct LogsOptions {
  std::vector<std::string> names;
  std::vector<std::string> selectors;
  std::vector<std::string> instances;
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
          "name; -i picks one instance. With -f it waits for the job to start and ends when the "
          "job does; Ctrl-C stops only the printing. With several jobs, each line has the job's "
          "name too. 'dtrain get --events' shows what the engine reported about a job.",
      .examples = {"dtrain logs mnist -f", "# The last ten lines of one worker",
                   "dtrain logs mnist -i worker-1 --tail=10", "# The run before the last restart",
                   "dtrain logs mnist --previous"},
      .options = {job_argument(&options.names, "A job", false),
                  selector_option(options.selectors),
                  {.flags = "-i,--instance",
                   .target = &options.instances,
                   .metavar = "NAME",
                   .help = "Only this instance, without its name before each line; may be repeated",
                   .complete = Complete::instance},
                  {.flags = "-c,--container",
                   .target = &options.query.container,
                   .metavar = "NAME",
                   .help = "This container of each Pod, such as the one that fetched the code "
                           "(default: the program's)"},
                  {.flags = "-f,--follow",
                   .target = &options.query.follow,
                   .help = "Keep printing until the job ends"},
                  {.flags = "-t,--tail",
                   .target = &options.query.tail,
                   .metavar = "N",
                   .help = "Only the last N lines of each instance (default: all)",
                   .minimum = 0},
                  {.flags = "--since",
                   .target = &options.since,
                   .metavar = "TIME",
                   .help = "Only lines newer than 5m, 1h30m, or 2026-01-31T18:00:00Z",
                   .aliases = {"--since-time"}},
                  {.flags = "--timestamps",
                   .target = &options.timestamps,
                   .help = "Begin each line with its time"},
                  {.flags = "-p,--previous",
                   .target = &options.query.previous,
                   .help = "Show the run before the last restart",
                   .aliases = {"--prev"}}}};
  add_target(table, options.target);
  return table;
}

/// A job whose lines are wanted.
struct LogSource {
  Target target; ///< A backend of its own: several are followed at once.
  JobStatus job;
  LogQuery query;
  std::vector<std::string> instances; ///< Instances whose lines are wanted.
};

LogSource log_source(const Context& context, const LogsOptions& options, const std::string& name,
                     Time since) {
  LogSource source = {open_target(context, options.target), {}, options.query, {}};
  source.job = source.target.status(name);
  source.query.since = since;
  for (const std::string& instance : options.instances) {
    source.instances.push_back(instance_named(source.job, instance));
  }
  if (source.instances.size() == 1) {
    source.query.instance = source.instances[0];
  }
  if (source.query.previous && source.job.restarts == 0) {
    throw NotFound(fmt::format("--previous: job '{}' has not been restarted; it has one run only",
                               source.job.name));
  }
  return source;
}

bool has_instance(const JobStatus& job, const std::string& name) {
  return std::any_of(job.instances.begin(), job.instances.end(),
                     [&](const InstanceStatus& instance) { return instance.name == name; });
}

/// `prefix` stands before each instance's name: "mnist/" where there are several jobs.
void print_source(LogSource& source, LogPrinter& printer, const std::string& prefix,
                  std::mutex& printing) {
  source.target.backend->logs(
      {source.job.namespace_name, source.job.name}, source.query, [&](const LogLine& line) {
        const auto& wanted = source.instances;
        if (wanted.empty() ||
            std::find(wanted.begin(), wanted.end(), line.instance) != wanted.end()) {
          const std::lock_guard lock(printing);
          LogLine named = line;
          const std::string name = prefix.empty() ? "" : prefix + std::string(line.instance);
          named.instance = prefix.empty() ? line.instance : name;
          printer.print(named);
        }
        return true;
      });
}

std::vector<std::string> prefixed_names(const LogSource& source, const std::string& prefix) {
  std::vector<std::string> names;
  for (const auto& instance : source.job.instances) {
    names.push_back(prefix + instance.name);
  }
  return names;
}

/// A thread each where they are followed, so that each line comes as it is written.
void print_sources(Context& context, std::vector<LogSource>& sources, bool timestamps) {
  const bool many = sources.size() > 1;
  const auto prefix = [&](const LogSource& source) { return many ? source.job.name + "/" : ""; };
  std::vector<std::string> names;
  for (const LogSource& source : sources) {
    const auto more = prefixed_names(source, prefix(source));
    names.insert(names.end(), more.begin(), more.end());
  }
  const bool follow = sources[0].query.follow;
  LogPrinter printer(context.out, names,
                     {.prefix = many || (sources[0].query.instance.empty() && names.size() > 1),
                      .timestamps = timestamps,
                      .flush_lines = follow});
  std::mutex printing;
  if (many && follow) {
    std::vector<std::exception_ptr> errors(sources.size());
    {
      std::vector<std::jthread> threads;
      for (std::size_t i = 0; i < sources.size(); ++i) {
        threads.emplace_back([&, i] {
          try {
            print_source(sources[i], printer, prefix(sources[i]), printing);
          } catch (...) {
            errors[i] = std::current_exception();
          }
        });
      }
    }
    for (const auto& error : errors) {
      if (error) {
        std::rethrow_exception(error);
      }
    }
  } else {
    for (LogSource& source : sources) {
      print_source(source, printer, prefix(source), printing);
    }
  }
  printer.finish();
}

int run_logs(Context& context, const LogsOptions& options) {
  const Time since = options.since.empty() ? options.query.since
                                           : parse_since("--since", options.since, context.now());
  const Target target = open_target(context, options.target);
  const auto names = names_of(target, options.names, options.selectors);
  if (names.empty() && options.selectors.empty()) {
    throw UsageError("name a job, or give --selector: dtrain logs NAME");
  }
  std::vector<LogSource> sources;
  for (const auto& name : names) {
    try {
      sources.push_back(log_source(context, options, name, since));
    } catch (const NotFound&) {
      if (sources.empty() || !has_instance(sources[0].job, name)) {
        throw;
      }
      throw NotFound(fmt::format("no job '{0}'; for this instance of job '{1}': dtrain logs {1} "
                                 "-i {0}",
                                 name, sources[0].job.name));
    }
    const std::string shown = sources.back().job.name;
    sources.back().query.on_wait = [&context, shown](const std::string& why) {
      context.note(fmt::format("job/{} waits: {}", shown, why));
    };
  }
  if (sources.empty()) {
    context.note("No such jobs.");
    return 0;
  }
  std::optional<DetachOnInterrupt> detach;
  if (options.query.follow) {
    detach.emplace(
        sources.size() == 1
            ? fmt::format("dtrain logs: stopped following; job/{} goes on", sources[0].job.name)
            : "dtrain logs: stopped following; the jobs go on");
  }
  print_sources(context, sources, options.timestamps);
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
