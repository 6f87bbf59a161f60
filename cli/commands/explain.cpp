#include "cli/commands.h"
#include "cli/output/data.h"
#include "cli/output/job_text.h"
#include "cli/output/output_option.h"
#include "cli/output/time.h"
#include "cli/target.h"
#include "submit/errors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace dtrain {
namespace {

struct ExplainOptions {
  std::string name;
  std::string output;
  TargetOptions target;
};

CommandTable explain_table(ExplainOptions& options) {
  CommandTable table = {
      .name = "explain",
      .summary = "Say why a job waits or failed",
      .description = "Says in a few lines what state the job is in and why, as the engine reports "
                     "it, and what you can do.",
      .examples = {"dtrain explain mnist"},
      .options = {job_argument(&options.name), output_option(options.output, {"json", "yaml"})}};
  add_target(table, options.target);
  return table;
}

/// The output of `explain`, for people and for programs.
struct Explanation {
  std::string state;              ///< "has been running for 5m"
  std::string why;                ///< Empty: nothing more is known.
  std::vector<std::string> hints; ///< Advice, one line each.
};

std::string state_line(const JobStatus& job, Time now) {
  const auto since = [&](Time time) { return human_duration(now - time); };
  switch (job.phase) {
  case Phase::queuing:
    return fmt::format("has waited in a queue for {}", since(job.created));
  case Phase::suspended:
    return "is suspended";
  case Phase::pending:
    return fmt::format("has waited to start for {}", since(job.created));
  case Phase::running:
    return fmt::format("has been running for {}", since(job.started));
  case Phase::succeeded:
    return fmt::format("succeeded {} ago, after {}", since(job.ended),
                       human_duration(age(job, now)));
  case Phase::failed:
  case Phase::terminated:
    if (job.ended == 0) {
      return "failed";
    }
    return fmt::format("failed {} ago, after {}", since(job.ended), human_duration(age(job, now)));
  }
  return "";
}

/// Instances that are not where the job is: those that hold it up. Empty: none.
std::string stragglers(const JobStatus& job) {
  constexpr std::size_t k_most = 8;
  std::vector<std::string> names;
  for (const auto& instance : job.instances) {
    if (!is_final(job.phase) && instance.phase != Phase::running && !is_final(instance.phase)) {
      names.push_back(instance.name);
    }
  }
  if (names.empty() || job.phase == Phase::suspended) {
    return "";
  }
  const std::size_t count = names.size();
  names.resize(std::min(count, k_most));
  return fmt::format("{} of {} instances have not started: {}{}", count, job.instances.size(),
                     fmt::join(names, ", "), count > k_most ? ", …" : "");
}

Explanation explain(const JobStatus& job, Time now) {
  Explanation text = {.state = state_line(job, now), .why = {}, .hints = {}};
  if (job.cause) {
    text.why = cause_line(*job.cause);
  } else if (job.phase != Phase::suspended) {
    text.why = printable(job.reason);
  }
  if (job.phase == Phase::pending && job.starts > 0) {
    text.hints.push_back(fmt::format(
        "expected to start at {}{}", local_time(job.starts),
        job.starts > now ? fmt::format(", in {}", human_duration(job.starts - now)) : ""));
  }
  if (job.phase == Phase::suspended) {
    text.hints.push_back(fmt::format("start it again: dtrain resume {}", job.name));
  }
  if (const std::string late = stragglers(job); !late.empty()) {
    text.hints.push_back(late);
  }
  if (job.restarts > 0) {
    text.hints.push_back(
        fmt::format("restarted {} time{}; the previous run: dtrain logs {} --previous",
                    job.restarts, job.restarts == 1 ? "" : "s", job.name));
  }
  if (job.phase == Phase::failed && job.cause && !job.cause->instance.empty()) {
    text.hints.push_back(
        fmt::format("its whole log: dtrain logs {} -i {}", job.name, job.cause->instance));
  }
  return text;
}

int run_explain(Context& context, const ExplainOptions& options) {
  const Target target = open_target(context, options.target);
  const JobStatus job = target.status(options.name);
  const Explanation text = explain(job, context.now());
  if (const auto format = data_format(options.output)) {
    context.out.write(explanation_data(job, text.state, text.why, text.hints, *format));
    return 0;
  }
  Stream& out = context.out;
  out.write(fmt::format("job/{} {}\n", job.name, text.state));
  if (!text.why.empty()) {
    out.write(fmt::format("  {}\n", text.why));
  }
  if (job.cause) {
    print_last_stderr(out, *job.cause, "    ");
  }
  for (const std::string& hint : text.hints) {
    out.write(fmt::format("  {}\n", hint));
  }
  return 0;
}

} // namespace

Invocation explain_command() { return bind(explain_table, run_explain); }

} // namespace dtrain
