#include "cli/commands.h"
#include "cli/commands/job_outcome.h"
#include "cli/exit_codes.h"
#include "cli/interrupt.h"
#include "cli/output/job_text.h"
#include "cli/output/time.h"
#include "submit/errors.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>

namespace dtrain {
namespace {

struct WaitOptions {
  std::vector<std::string> names;
  std::string timeout;
  std::string until;
  TargetOptions target;
};

CommandTable wait_table(WaitOptions& options) {
  CommandTable table = {
      .name = "wait",
      .summary = "Wait until jobs have ended, or run",
      .description = "Waits until every job named has ended, and reports each as it does. Exits "
                     "with 100 if one failed, after printing why, and with 124 on a timeout.",
      .examples = {"dtrain wait mnist && echo trained", "dtrain wait a b --timeout=1h",
                   "# Until all of its instances run", "dtrain wait mnist --for=running"},
      .options = {job_argument(&options.names, "A job to wait for"),
                  {.flags = "--for",
                   .target = &options.until,
                   .metavar = "STATE",
                   .help = "What to wait for: ended, or running (default: ended)",
                   .complete = Complete::choices,
                   .choices = {"ended", "running"}},
                  {.flags = "--timeout",
                   .target = &options.timeout,
                   .metavar = "TIME",
                   .help = "Give up after this long, 90s or 1h30m, and exit with 124 (default: "
                           "never)"}}};
  add_target(table, options.target);
  return table;
}

std::chrono::nanoseconds timeout(const WaitOptions& options) {
  if (options.timeout.empty()) {
    return {};
  }
  const auto after = parse_duration("--timeout", options.timeout);
  if (after <= std::chrono::nanoseconds::zero()) {
    throw UsageError("--timeout: must be more than 0");
  }
  return after;
}

/// Empty where it does not, or nobody says.
std::string why_it_waits(const JobStatus& job) {
  const bool waits = job.phase == Phase::pending || is_held_back(job.phase);
  return waits ? job.reason : std::string();
}

bool is_reached(const JobStatus& job, bool until_running) {
  const auto runs = [](const InstanceStatus& it) { return it.phase == Phase::running; };
  const bool all_run =
      job.phase == Phase::running && std::all_of(job.instances.begin(), job.instances.end(), runs);
  return is_final(job.phase) || (until_running && all_run);
}

/// Says how it went; `status` becomes the exit code of what went wrong.
void report(Context& context, const JobNews& news, int& status) {
  const JobStatus& job = news.status;
  try {
    if (news.error) {
      std::rethrow_exception(news.error);
    }
    if (job.phase == Phase::running) {
      context.out.write(fmt::format("job/{} is running\n", job.name));
    } else {
      require_success(job);
      context.out.write(fmt::format("job/{} succeeded in {}\n", job.name,
                                    human_duration(age(job, context.now()))));
    }
    context.out.flush();
  } catch (const std::exception& error) {
    status = exit_code(error);
    context.complain(error.what());
    if (job.cause) {
      print_last_stderr(context.err, *job.cause, "  ");
      context.err.flush();
    }
  }
}

int run_wait(Context& context, const WaitOptions& options) {
  const bool until_running = options.until == "running";
  const Deadline deadline(timeout(options),
                          fmt::format("dtrain wait: not {} after {}; the jobs go on",
                                      until_running ? "running" : "ended", options.timeout));
  const Target target = open_target(context, options.target);
  // Looks up all of them first: a wrong name is an error before hours of waiting.
  for (const auto& name : options.names) {
    target.status(name);
  }
  const DetachOnInterrupt detach("dtrain wait: stopped waiting; the jobs go on");
  int status = k_exit_ok;
  std::vector<std::string> reasons(options.names.size()); // As last printed.
  target.backend->watch_all(target.namespace_name, options.names, [&](const JobNews& news) {
    if (news.error || is_reached(news.status, until_running)) {
      report(context, news, status);
      return false;
    }
    if (const auto why = why_it_waits(news.status); !why.empty() && why != reasons[news.which]) {
      context.note(fmt::format("job/{} waits: {}", options.names[news.which], printable(why)));
    }
    reasons[news.which] = news.status.reason;
    return true;
  });
  return status;
}

} // namespace

JobStatus wait_for_end(const Target& target, const std::string& name) {
  JobStatus last;
  target.backend->watch(target.job(name), [&](const JobStatus& job) {
    last = job;
    return !is_final(job.phase);
  });
  return last;
}

void require_success(const JobStatus& job) {
  if (job.phase == Phase::succeeded) {
    return;
  }
  std::string why = job.reason;
  if (job.cause) {
    why = cause_line(*job.cause);
  }
  throw JobFailed(why.empty() ? fmt::format("job/{} failed", job.name)
                              : fmt::format("job/{} failed: {}", job.name, printable(why)));
}

Invocation wait_command() { return bind(wait_table, run_wait); }

} // namespace dtrain
