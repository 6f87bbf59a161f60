#include "cli/commands.h"
#include "cli/output/job_text.h"
#include "cli/output/time.h"
#include "cli/target.h"
#include "submit/errors.h"

#include <fmt/format.h>

namespace dtrain {
namespace {

struct ExplainOptions {
  std::string name;
  TargetOptions target;
};

CommandTable explain_table(ExplainOptions& options) {
  CommandTable table = {
      .name = "explain",
      .summary = "Say why a job waits, failed or is where it is",
      .description = "Says in a few lines what the job's state is and why, in the engine's own "
                     "words, and what can be done.",
      .examples = {"dtrain explain mnist"},
      .options = {job_argument(options.name)}};
  add_target(table, options.target);
  return table;
}

std::string state_line(const JobStatus& job, Time now) {
  const auto since = [&](Time time) { return human_duration(now - time); };
  switch (job.phase) {
  case Phase::queuing:
    return fmt::format("has waited in a queue for {}", since(job.created));
  case Phase::pending:
    return fmt::format("has waited to start for {}", since(job.created));
  case Phase::running:
    return fmt::format("has been running for {}", since(job.started));
  case Phase::succeeded:
    return fmt::format("succeeded {} ago, after {}", since(job.ended),
                       human_duration(age(job, now)));
  case Phase::failed:
    return fmt::format("failed {} ago, after {}", since(job.ended), human_duration(age(job, now)));
  }
  return "";
}

/// Instances that are not where the job is: those that hold it up.
void print_stragglers(Stream& out, const JobStatus& job) {
  constexpr std::size_t k_most = 8;
  std::vector<std::string> names;
  for (const auto& instance : job.instances) {
    if (!is_final(job.phase) && instance.phase != Phase::running && !is_final(instance.phase)) {
      names.push_back(instance.name);
    }
  }
  if (names.empty()) {
    return;
  }
  std::string text = names[0];
  for (std::size_t i = 1; i < std::min(names.size(), k_most); ++i) {
    text += ", " + names[i];
  }
  out.write(fmt::format("  {} of {} instances have not started: {}{}\n", names.size(),
                        job.instances.size(), text, names.size() > k_most ? ", …" : ""));
}

int run_explain(Context& context, const ExplainOptions& options) {
  const Target target = open_target(context, options.target);
  const JobStatus job = target.status(options.name);
  Stream& out = context.out;
  out.write(fmt::format("job/{} {}\n", job.name, state_line(job, context.now())));
  if (job.cause) {
    out.write(fmt::format("  {}\n", cause_line(*job.cause)));
    print_last_stderr(out, *job.cause, "    ");
  } else if (!job.reason.empty()) {
    out.write(fmt::format("  {}\n", printable(job.reason)));
  }
  print_stragglers(out, job);
  if (job.restarts > 0) {
    out.write(fmt::format("  started anew {} times: 'dtrain logs {} --prev' has the run before\n",
                          job.restarts, job.name));
  }
  if (job.phase == Phase::failed && job.cause && !job.cause->instance.empty()) {
    out.write(fmt::format("  all it wrote: dtrain logs {} -i {}\n", job.name, job.cause->instance));
  }
  return 0;
}

} // namespace

Invocation explain_command() { return bind(explain_table, run_explain); }

} // namespace dtrain
