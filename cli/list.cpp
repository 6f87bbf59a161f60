#include "cli/commands.h"
#include "cli/job_list.h"
#include "cli/output/job_text.h"
#include "cli/output_option.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace dtrain {
namespace {

struct ListOptions {
  ListStyle style;
  TargetOptions target;
};

CommandTable list_table(ListOptions& options) {
  CommandTable table = {
      .name = "list",
      .summary = "List jobs, newest first",
      .description = "Lists the jobs of a namespace, newest first.",
      .examples = {"dtrain list", "# Those that failed, in every namespace",
                   "dtrain list -A -o json | jq -r '.[] | select(.status == \"FAILED\").name'"},
      .options = {{.flags = "-A,--all-namespaces",
                   .target = &options.style.all_namespaces,
                   .help = "The jobs of every namespace",
                   .group = "Where"},
                  output_option(options.style.output, {"wide", "json", "yaml", "name"})}};
  for (auto& option : target_options(options.target)) {
    table.options.push_back(std::move(option));
  }
  return table;
}

int run_list(Context& context, const ListOptions& options) {
  print_list(context, open_target(context, options.target), options.style);
  return 0;
}

void print_names(Stream& out, const std::vector<JobSummary>& jobs) {
  std::string text;
  for (const auto& job : jobs) {
    fmt::format_to(std::back_inserter(text), "job/{}\n", job.name);
  }
  out.write(text);
}

} // namespace

void print_list(Context& context, const Target& target, const ListStyle& style) {
  auto jobs = target.backend->list({style.all_namespaces ? std::string() : target.namespace_name});
  std::sort(jobs.begin(), jobs.end(), [](const JobSummary& a, const JobSummary& b) {
    return a.created != b.created ? a.created > b.created : a.name < b.name;
  });
  const Time now = context.now();
  if (const auto format = data_format(style.output)) {
    context.out.write(jobs_data(jobs, now, *format));
  } else if (style.output == "name") {
    print_names(context.out, jobs);
  } else if (jobs.empty()) {
    context.note(style.all_namespaces
                     ? "No jobs."
                     : fmt::format("No jobs in namespace '{}'.", target.namespace_name));
  } else {
    print_jobs(context.out, jobs, now, style.output == "wide", style.all_namespaces);
  }
}

Invocation list_command() { return bind(list_table, run_list); }

} // namespace dtrain
