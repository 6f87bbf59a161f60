#include "cli/commands.h"
#include "cli/commands/job_list.h"
#include "cli/interrupt.h"
#include "cli/job_filter.h"
#include "cli/output/job_text.h"
#include "cli/output/output_option.h"
#include "cli/output/redraw.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace dtrain {
namespace {

struct ListOptions {
  ListStyle style;
  bool watch = false;
  TargetOptions target;
};

CommandTable list_table(ListOptions& options) {
  CommandTable table = {
      .name = "list",
      .summary = "List jobs, newest first",
      .description = "Lists the jobs of a namespace, newest first. With -w the list is redrawn, "
                     "or printed again on a pipe, whenever it changes.",
      .examples = {"dtrain list", "# Those that failed, in every namespace",
                   "dtrain list -A --status=failed", "# A team's, the longest first",
                   "dtrain list -l team=vision --sort=duration"},
      .options = {{.flags = "-A,--all-namespaces",
                   .target = &options.style.all_namespaces,
                   .help = "Jobs in all namespaces",
                   .group = "Where"},
                  selector_option(options.style.selectors),
                  status_option(options.style.statuses),
                  type_option(options.style.trainer),
                  {.flags = "--sort",
                   .target = &options.style.sort,
                   .metavar = "KEY",
                   .help = "Order (default: created, the newest first)",
                   .group = "Output",
                   .complete = Complete::choices,
                   .choices = {"created", "name", "status", "duration", "gpus"}},
                  {.flags = "-w,--watch",
                   .target = &options.watch,
                   .help = "Keep showing the list until Ctrl-C",
                   .group = "Output"},
                  output_option(options.style.output, {"wide", "json", "yaml", "name"})}};
  add_target(table, options.target);
  return table;
}

void print_names(Stream& out, const std::vector<JobSummary>& jobs) {
  std::string text;
  for (const auto& job : jobs) {
    fmt::format_to(std::back_inserter(text), "job/{}\n", job.name);
  }
  out.write(text);
}

/// Less is first. Ties, and jobs sorted by nothing else, are newest first.
bool is_before(const JobSummary& a, const JobSummary& b, const std::string& sort, Time now) {
  if (sort == "name" && a.name != b.name) {
    return a.name < b.name;
  }
  if (sort == "status" && a.phase != b.phase) {
    return a.phase < b.phase;
  }
  if (sort == "duration" && age(a, now) != age(b, now)) {
    return age(a, now) > age(b, now);
  }
  if (sort == "gpus" && a.gpus_requested != b.gpus_requested) {
    return a.gpus_requested > b.gpus_requested;
  }
  return a.created != b.created ? a.created > b.created : a.name < b.name;
}

/// Sorts indices, as a job is expensive to move.
void sort_jobs(std::vector<JobSummary>& jobs, const std::string& sort, Time now) {
  std::vector<JobSummary*> order;
  order.reserve(jobs.size());
  for (auto& job : jobs) {
    order.push_back(&job);
  }
  std::sort(order.begin(), order.end(),
            [&](const JobSummary* a, const JobSummary* b) { return is_before(*a, *b, sort, now); });
  std::vector<JobSummary> sorted;
  sorted.reserve(jobs.size());
  for (auto* job : order) {
    sorted.push_back(std::move(*job));
  }
  jobs = std::move(sorted);
}

[[noreturn]] void watch_list(Context& context, const Target& target, const ListStyle& style) {
  const DetachOnInterrupt detach("dtrain list: stopped watching; the jobs go on");
  redraw_forever(context.out, [&](Stream& picture) {
    Context inner = {picture, context.err, context.make_backend, context.now, context.config_file};
    print_list(inner, target, style);
  });
}

int run_list(Context& context, const ListOptions& options) {
  const Target target = open_target(context, options.target);
  if (options.watch) {
    watch_list(context, target, options.style);
  }
  print_list(context, target, options.style);
  return 0;
}

} // namespace

void print_list(Context& context, const Target& target, const ListStyle& style) {
  auto jobs = target.backend->list({style.all_namespaces ? std::string() : target.namespace_name});
  filter_jobs(jobs, style.selectors, style.statuses, style.trainer);
  const Time now = context.now();
  sort_jobs(jobs, style.sort, now);
  if (const auto format = data_format(style.output)) {
    context.out.write(jobs_data(jobs, target.backend->name(), now, *format));
  } else if (style.output == "name") {
    print_names(context.out, jobs);
  } else if (jobs.empty()) {
    context.note(style.all_namespaces || !style.selectors.empty() || !style.statuses.empty() ||
                         !style.trainer.empty()
                     ? "No jobs."
                     : no_jobs_text(target));
  } else {
    print_jobs(context.out, jobs, target.backend->name(), now, style.output == "wide",
               style.all_namespaces);
  }
}

Invocation list_command() { return bind(list_table, run_list); }

} // namespace dtrain
