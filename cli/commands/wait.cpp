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
#include <mutex>
#include <thread>

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

struct Outcome {
  JobStatus job;
  std::exception_ptr error; ///< It could not be waited for.
};

Outcome wait_for(const Context& context, const Target& target, const std::string& name,
                 bool until_running, std::mutex& printing) {
  try {
    const auto on_wait = [&](const std::string& why) {
      const std::lock_guard lock(printing);
      context.note(fmt::format("job/{} waits: {}", name, why));
    };
    return {wait_for_state(target, name, until_running, on_wait), nullptr};
  } catch (...) {
    return {{}, std::current_exception()};
  }
}

/// Says how it went; `status` becomes the exit code of what went wrong.
void report(Context& context, const Outcome& outcome, int& status) {
  try {
    if (outcome.error) {
      std::rethrow_exception(outcome.error);
    }
    const JobStatus& job = outcome.job;
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
    if (outcome.job.cause) {
      print_last_stderr(context.err, *outcome.job.cause, "  ");
      context.err.flush();
    }
  }
}

int run_wait(Context& context, const WaitOptions& options) {
  const Deadline deadline(timeout(options),
                          fmt::format("dtrain wait: not {} after {}; the jobs go on",
                                      options.until == "running" ? "running" : "ended",
                                      options.timeout));
  const Target target = open_target(context, options.target);
  // All of them first: a name that is wrong is told before hours of waiting.
  for (const auto& name : options.names) {
    target.status(name);
  }
  const DetachOnInterrupt detach("dtrain wait: stopped waiting; the jobs go on");
  std::mutex printing;
  int status = k_exit_ok;
  {
    // A thread each, with a backend of its own, so that each is reported as it ends.
    std::vector<Target> targets;
    targets.reserve(options.names.size());
    std::vector<std::jthread> waiting;
    waiting.reserve(options.names.size());
    for (const auto& name : options.names) {
      const Target& own = targets.emplace_back(open_target(context, options.target));
      waiting.emplace_back([&context, &options, &own, &name, &printing, &status] {
        const auto outcome = wait_for(context, own, name, options.until == "running", printing);
        const std::lock_guard lock(printing);
        report(context, outcome, status);
      });
    }
  }
  return status;
}

} // namespace

JobStatus wait_for_state(const Target& target, const std::string& name, bool until_running,
                         const std::function<void(const std::string&)>& on_wait) {
  JobStatus last;
  target.backend->watch(target.job(name), [&](const JobStatus& job) {
    const bool waits = job.phase == Phase::pending || is_held_back(job.phase);
    if (on_wait && waits && !job.reason.empty() && job.reason != last.reason) {
      on_wait(printable(job.reason));
    }
    last = job;
    const auto runs = [](const InstanceStatus& it) { return it.phase == Phase::running; };
    const bool all_run = job.phase == Phase::running &&
                         std::all_of(job.instances.begin(), job.instances.end(), runs);
    return !is_final(job.phase) && !(until_running && all_run);
  });
  return last;
}

JobStatus wait_for_end(const Target& target, const std::string& name,
                       const std::function<void(const std::string&)>& on_wait) {
  return wait_for_state(target, name, false, on_wait);
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
