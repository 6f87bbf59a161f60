#include "backends/support/bucket/bucket_cache.h"
#include "cli/commands.h"
#include "cli/exit_codes.h"
#include "cli/job_filter.h"
#include "cli/output/time.h"
#include "cli/target.h"
#include "submit/errors.h"

#include <fmt/format.h>

namespace dtrain {
namespace {

struct PruneOptions {
  std::string since;
  std::vector<std::string> selectors;
  bool all_namespaces = false;
  bool dry_run = false;
  TargetOptions target;
};

CommandTable prune_table(PruneOptions& options) {
  CommandTable table = {
      .name = "prune",
      .summary = "Delete jobs that ended long ago",
      .description = "Deletes the jobs that ended longer ago than --since. Jobs that run stay. "
                     "Without --selector "
                     "it also deletes cached bucket copies that no job has used for that long.",
      .examples = {"dtrain prune --since=7d", "dtrain prune --since=1h -A --dry-run"},
      .options = {{.flags = "-s,--since",
                   .target = &options.since,
                   .metavar = "TIME",
                   .help =
                       "Delete what ended, or was used last, at least this long ago: 90s, 1h30m, "
                       "7d",
                   .required = true},
                  selector_option(options.selectors),
                  {.flags = "-A,--all-namespaces",
                   .target = &options.all_namespaces,
                   .help = "Jobs in all namespaces",
                   .group = "Where"},
                  {.flags = "--dry-run",
                   .target = &options.dry_run,
                   .help = "Print what would be deleted"}}};
  add_target(table, options.target);
  return table;
}

int run_prune(Context& context, const PruneOptions& options) {
  const auto since = parse_duration("--since", options.since);
  const Time limit = context.now() - since.count();
  const Target target = open_target(context, options.target);
  auto jobs = target.backend->list({options.all_namespaces ? "" : target.namespace_name});
  filter_jobs(jobs, options.selectors, {});
  std::erase_if(jobs,
                [&](const JobSummary& job) { return !is_final(job.phase) || job.ended > limit; });
  const char* const done = options.dry_run ? "would be deleted" : "deleted";
  const auto copies =
      options.selectors.empty()
          ? drop_buckets(std::chrono::duration_cast<std::chrono::seconds>(since), options.dry_run)
          : std::vector<std::string>();
  if (jobs.empty() && copies.empty()) {
    context.note("No jobs ended that long ago.");
  }
  for (const auto& folder : copies) {
    context.out.write(fmt::format("{} {}\n", printable(folder), done));
  }
  int status = k_exit_ok;
  for (const auto& job : jobs) {
    try {
      if (!options.dry_run) {
        target.backend->remove({job.namespace_name, job.name});
      }
      context.out.write(fmt::format("job/{} {}\n", job.name, done));
    } catch (const NotFound&) {
      // Somebody else was faster.
    } catch (const Error& error) {
      context.complain(error.what());
      status = exit_code(error);
    }
  }
  return status;
}

} // namespace

Invocation prune_command() { return bind(prune_table, run_prune); }

} // namespace dtrain
