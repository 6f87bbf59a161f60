#include "cli/commands.h"
#include "cli/commands/job_list.h"
#include "cli/exit_codes.h"
#include "cli/interrupt.h"
#include "cli/job_filter.h"
#include "cli/output/data.h"
#include "cli/output/job_text.h"
#include "cli/output/output_option.h"
#include "cli/output/redraw.h"
#include "cli/output/time.h"
#include "cli/target.h"
#include "submit/errors.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace dtrain {
namespace {

struct GetOptions {
  std::vector<std::string> names;
  std::vector<std::string> selectors;
  std::string output;
  bool watch = false;
  bool events = false;
  bool gpus = false;
  TargetOptions target;
};

CommandTable get_table(GetOptions& options) {
  CommandTable table = {
      .name = "get",
      .summary = "Show jobs and their instances",
      .description =
          "Shows a job's status, its instances and, if it failed, why: the first rank that failed, "
          "its exit code or signal and the last lines of its stderr. -o wide adds the command, the "
          "image and the environment; -o yaml and -o json hold the whole job as it was submitted. "
          "--events adds what the engine reported about the job: a cluster's events, or the "
          "messages of a queue in the job's log. Without a name, lists the jobs of the namespace.",
      .examples = {"dtrain get mnist", "# Follow it until it ends", "dtrain get mnist -w",
                   "# What failed, for a script", "dtrain get mnist -o json | jq .cause",
                   "# Each of a team's jobs", "dtrain get -l team=vision"},
      .options = {
          job_argument(&options.names, "A job to show", false),
          selector_option(options.selectors),
          {.flags = "-e,--events",
           .target = &options.events,
           .help = "Show what the engine reported about the job: events, or the queue's log",
           .group = "Output"},
          {.flags = "-g,--gpu",
           .target = &options.gpus,
           .help = "Show the GPUs of each instance",
           .group = "Output",
           .aliases = {"--gpus"}},
          {.flags = "-w,--watch",
           .target = &options.watch,
           .help = "Show every change until the job ends",
           .group = "Output"},
          output_option(options.output, {"wide", "json", "yaml", "name"})}};
  add_target(table, options.target);
  return table;
}

/// The job as it was submitted; nothing if the engine does not keep it.
std::optional<JobSpec> spec_of(const Target& target, const std::string& name) {
  try {
    return target.backend->spec(target.job(name));
  } catch (const Error&) {
    return std::nullopt;
  }
}

void print_jobs_whole(Stream& out, const Target& target, std::vector<JobStatus> jobs, Time now,
                      const GetOptions& options) {
  const std::string& output = options.output;
  const auto format = data_format(output);
  std::vector<WholeJob> whole;
  for (auto& job : jobs) {
    const bool wants_spec = format || output == "wide";
    auto spec = wants_spec ? spec_of(target, job.name) : std::nullopt;
    auto events = options.events && output != "name"
                      ? std::optional(target.backend->events(target.job(job.name)))
                      : std::nullopt;
    whole.push_back({std::move(job), std::move(spec), std::move(events)});
  }
  if (format) {
    out.write(whole_jobs_data(whole, target.backend->name(), now, *format));
    return;
  }
  for (const WholeJob& job : whole) {
    if (output == "name") {
      out.write(fmt::format("job/{}\n", job.status.name));
      continue;
    }
    out.write(&job == whole.data() ? "" : "\n");
    print_job(
        out, job.status, now,
        {.wide = output == "wide", .gpus = options.gpus, .spec = job.spec, .events = job.events});
  }
}

/// Adds a row for each change, under one header; the reader of a pipe sees each as it comes.
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

void watch_job(Context& context, const Target& target, const std::string& name,
               const GetOptions& options) {
  const std::string& output = options.output;
  const DetachOnInterrupt detach("dtrain get: stopped watching; the job goes on");
  Redraw redraw(context.out);
  bool first = true;
  target.backend->watch(target.job(name), [&](const JobStatus& job) {
    const Time now = context.now();
    if (context.out.terminal().is_terminal && output != "json") {
      Stream picture;
      picture.set_terminal(context.out.terminal());
      print_jobs_whole(picture, target, {job}, now, options);
      redraw.draw(picture.text());
    } else if (output.empty() || output == "wide") {
      append_row(context.out, job, now, first);
    } else {
      print_jobs_whole(context.out, target, {job}, now, options);
      context.out.flush();
    }
    first = false;
    return !is_final(job.phase);
  });
}

int run_get(Context& context, const GetOptions& options) {
  const Target target = open_target(context, options.target);
  if (options.watch && (options.names.size() != 1 || !options.selectors.empty())) {
    throw UsageError("--watch takes one job: dtrain get NAME --watch; dtrain list --watch shows "
                     "them all");
  }
  if (options.names.empty() && options.selectors.empty()) {
    ListStyle style;
    style.output = options.output;
    print_list(context, target, style);
    return 0;
  }
  int status = k_exit_ok;
  std::vector<JobStatus> jobs;
  for (const auto& name : names_of(target, options.names, options.selectors)) {
    try {
      jobs.push_back(target.status(name));
    } catch (const NotFound& error) {
      // The others are shown.
      context.complain(error.what());
      status = k_exit_not_found;
    }
  }
  if (options.watch && !jobs.empty()) {
    watch_job(context, target, jobs[0].name, options);
  } else if (!jobs.empty()) {
    print_jobs_whole(context.out, target, std::move(jobs), context.now(), options);
  } else if (status == k_exit_ok) {
    context.note("No such jobs.");
  }
  return status;
}

} // namespace

Invocation get_command() { return bind(get_table, run_get); }

} // namespace dtrain
