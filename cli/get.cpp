#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/job_list.h"
#include "cli/output/job_text.h"
#include "cli/output/redraw.h"
#include "cli/output/time.h"
#include "cli/output_option.h"
#include "cli/target.h"
#include "submit/errors.h"

#include <fmt/format.h>

#include <algorithm>

namespace dtrain {
namespace {

struct GetOptions {
  std::string name;
  std::string output;
  bool watch = false;
  TargetOptions target;
};

CommandTable get_table(GetOptions& options) {
  CommandTable table = {
      .name = "get",
      .summary = "Show one job and its instances",
      .description =
          "Shows a job's status, its instances and, where it failed, why: the first rank that "
          "failed, its exit code or signal and the last lines of its stderr. Without a name, "
          "lists all jobs of the namespace.",
      .examples = {"dtrain get mnist", "# Follow it until it ends", "dtrain get mnist -w",
                   "# What failed, for a script", "dtrain get mnist -o json | jq .cause"},
      .options = {{.flags = "NAME",
                   .target = &options.name,
                   .help = "The job's name",
                   .complete = Complete::job,
                   .positional = true},
                  {.flags = "-w,--watch",
                   .target = &options.watch,
                   .help = "Show every change until the job ends",
                   .group = "Output"},
                  output_option(options.output, {"wide", "json", "yaml", "name"})}};
  add_target(table, options.target);
  return table;
}

void print_status(Stream& out, const JobStatus& job, Time now, const std::string& output) {
  if (const auto format = data_format(output)) {
    out.write(job_data(job, now, *format));
  } else if (output == "name") {
    out.write(fmt::format("job/{}\n", job.name));
  } else {
    print_job(out, job, now, output == "wide");
  }
}

/// One more row for each change, under one header; a pipe's reader sees them as they come.
void append_row(Stream& out, const JobStatus& job, Time now, bool first) {
  const auto running =
      std::count_if(job.instances.begin(), job.instances.end(),
                    [](const InstanceStatus& it) { return it.phase == Phase::running; });
  constexpr const char* k_row = "{:<20}  {:<9}  {:>7}  {:>8}  {}\n";
  if (first) {
    out.write(fmt::format(k_row, "NAME", "STATUS", "RUNNING", "RESTARTS", "DURATION"));
  }
  out.write(fmt::format(k_row, job.name, phase_name(job.phase),
                        fmt::format("{}/{}", running, job.instances.size()), job.restarts,
                        human_duration(age(job, now))));
  out.flush();
}

void watch_job(Context& context, const Target& target, const GetOptions& options) {
  const DetachOnInterrupt detach("dtrain get: stopped watching; the job goes on");
  Redraw redraw(context.out);
  bool first = true;
  target.backend->watch(target.job(options.name), [&](const JobStatus& job) {
    const Time now = context.now();
    if (context.out.terminal().is_terminal && options.output != "json") {
      Stream picture;
      picture.set_terminal(context.out.terminal());
      print_status(picture, job, now, options.output);
      redraw.draw(picture.text());
    } else if (options.output.empty() || options.output == "wide") {
      append_row(context.out, job, now, first);
    } else {
      print_status(context.out, job, now, options.output);
      context.out.flush();
    }
    first = false;
    return !is_final(job.phase);
  });
}

int run_get(Context& context, const GetOptions& options) {
  const Target target = open_target(context, options.target);
  if (options.name.empty()) {
    if (options.watch) {
      throw UsageError(
          "--watch needs a job's name: dtrain get NAME --watch, or dtrain list --watch");
    }
    ListStyle style;
    style.output = options.output;
    print_list(context, target, style);
    return 0;
  }
  const JobStatus job = target.status(options.name);
  if (options.watch) {
    watch_job(context, target, options);
  } else {
    print_status(context.out, job, context.now(), options.output);
  }
  return 0;
}

} // namespace

Invocation get_command() { return bind(get_table, run_get); }

} // namespace dtrain
