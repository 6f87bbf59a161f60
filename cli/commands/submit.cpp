#include "backends/support/user/template_files.h"
#include "cli/commands.h"
#include "cli/commands/job_logs.h"
#include "cli/commands/job_outcome.h"
#include "cli/commands/submit_options.h"
#include "cli/interrupt.h"
#include "cli/output/job_text.h"
#include "cli/output/output_option.h"
#include "cli/output/steps.h"
#include "cli/output/time.h"
#include "cli/target.h"
#include "submit/errors.h"
#include "submit/fields/job_fields.h"
#include "submit/job_roles.h"

#include <fmt/format.h>

#include <optional>

namespace dtrain {
namespace {

/// The flags that other commands need to find the job again.
std::string where_flags(const Target& target, const SubmitOptions& options) {
  std::string flags;
  if (target.namespace_name != target.backend->default_namespace()) {
    flags += fmt::format(" -n {}", target.namespace_name);
  }
  if (options.job.backend != default_backend()) {
    flags += fmt::format(" -b {}", options.job.backend);
  }
  return flags + options.access.flags();
}

/// One plan as it is; several as one YAML stream, which the engine's own tool accepts.
void print_documents(Context& context, const std::vector<Plan::Document>& documents) {
  for (const auto& document : documents) {
    if (documents.size() > 1) {
      context.out.write(fmt::format("---\n# {}\n", document.name));
    }
    context.out.write(document.text);
  }
}

/// Values made up for this submission only are not part of a job file: `asked` left them open.
void print_plan(Context& context, const Plan& plan, const JobSpec& asked,
                const std::string& output) {
  if (const auto format = data_format(output)) {
    JobSpec job = plan.job;
    job.name = asked.name.empty() ? "" : job.name;
    job.working_dir = asked.working_dir.empty() ? "" : job.working_dir;
    context.out.write(spec_data(job, *format));
  } else if (output == "name") {
    context.out.write(fmt::format("job/{}\n", plan.job.name));
  } else {
    print_documents(context, plan.documents);
  }
}

void print_submitted(Context& context, const Target& target, const SubmitOptions& options,
                     const std::string& name) {
  if (options.quiet) {
    return;
  }
  if (options.output == "name") {
    context.out.write(fmt::format("job/{}\n", name));
  } else if (const auto format = data_format(options.output)) {
    context.out.write(
        job_data(target.status(name), target.backend->name(), context.now(), *format));
  } else {
    context.out.write(fmt::format("job/{} submitted\n", name));
    if (!options.wait) {
      context.note(
          fmt::format("Follow it with: dtrain logs -f {}{}", name, where_flags(target, options)));
    }
  }
  context.out.flush();
}

/// Logs until the end, then how it went.
void follow(Context& context, const Target& target, const SubmitOptions& options,
            const std::string& name) {
  const DetachOnInterrupt detach(
      fmt::format("dtrain submit: job/{0} goes on\n  Watch it with: dtrain logs -f {0}{1}\n"
                  "  End it with:   dtrain delete {0}{1}",
                  name, where_flags(target, options)));
  if (!options.quiet && options.output.empty()) {
    LogQuery query;
    query.follow = true;
    query.on_wait = [&](const std::string& why) {
      context.note(fmt::format("job/{} waits: {}", name, why));
    };
    print_logs(context, target, target.status(name), query, false);
  }
  const JobStatus job = wait_for_end(target, name);
  require_success(job);
  if (!options.quiet) {
    context.note(
        fmt::format("job/{} succeeded in {}", name, human_duration(age(job, context.now()))));
  }
}

/// "job/mnist: 3 workers of 1 GPU on BACKEND"
std::string resolved_text(const JobSpec& job) {
  std::string roles;
  for (const Role& role : job_roles(job)) {
    roles += fmt::format("{}{} {}{}", roles.empty() ? "" : ", ", role.replicas, role.name,
                         role.replicas == 1 ? "" : "s");
    roles +=
        role.gpus == 0 ? "" : fmt::format(" of {} GPU{}", role.gpus, role.gpus == 1 ? "" : "s");
  }
  return fmt::format("job/{}: {} on {}", job.name, roles, job.backend);
}

/// Submits the plan and shows each step; false if the plan is stale and a new one is needed. Ctrl-C
/// during an upload or a copy removes what has been copied so far, then ends dtrain.
bool submit_in_steps(Backend& backend, const Plan& plan, Steps& steps) {
  std::optional<NoteInterrupt> interrupt;
  const auto require_wanted = [&] {
    if (interrupt && interrupt->signal() != 0) {
      throw Interrupted("interrupted; nothing was submitted", interrupt->signal());
    }
  };
  try {
    backend.submit(plan, [&](const SubmitProgress& progress) {
      const bool brings = !progress.done && (progress.step == SubmitStep::upload ||
                                             progress.step == SubmitStep::copy);
      if (brings && !interrupt) {
        interrupt.emplace();
      }
      require_wanted();
      if (!brings) {
        interrupt.reset();
      }
      steps.tell(progress);
    });
    return true;
  } catch (const StalePlan&) {
    require_wanted();
    return false;
  } catch (const Error&) {
    steps.fail();
    require_wanted(); // A signal to all of the terminal's processes ends git too.
    throw;
  }
}

int run_submit(Context& context, const SubmitOptions& options) {
  const bool asks_server = options.dry_run == "server";
  if (asks_server) {
    find_engine(options.job.backend).require(Ability::try_plan);
  }
  const Target target =
      make_target(context, options.job.backend, options.access, options.job.namespace_name);
  JobSpec job = options.job;
  job.namespace_name = target.namespace_name;
  job = resolve(std::move(job));
  const auto tell = [&](const std::vector<std::string>& notices) {
    for (const std::string& notice : notices) {
      if (!options.quiet) {
        context.note(fmt::format("{}: {}", context.program, printable(notice)));
      }
    }
  };
  tell(options.notices);
  tell(check_fields(options.job)); // Checks what the user gave, without what resolve() makes of it.
  if (options.dry_run.empty()) {
    target.backend->expect(job);
  }
  const Templates templates = read_templates(job, context.template_folder());
  Plan plan = target.backend->plan(job, templates);
  tell(plan.notices);
  if (asks_server) {
    print_documents(context, target.backend->try_plan(plan));
    return 0;
  }
  if (!options.dry_run.empty()) {
    print_plan(context, plan, options.job, options.output);
    return 0;
  }
  Steps steps(context.err, options.quiet || !options.output.empty());
  steps.resolved(resolved_text(plan.job));
  // Between planning and submission another job may have taken what the plan names, such as a GPU:
  // then the engine makes another plan, until one holds. Notices are printed again only if they
  // differ.
  while (!submit_in_steps(*target.backend, plan, steps)) {
    const auto known = std::move(plan.notices);
    plan = target.backend->plan(job, templates);
    if (plan.notices != known) {
      tell(plan.notices);
    }
  }
  print_submitted(context, target, options, plan.job.name);
  if (options.wait) {
    follow(context, target, options, plan.job.name);
  }
  return 0;
}

} // namespace

Invocation clone_command() {
  auto options = std::make_shared<SubmitOptions>();
  Invocation invocation;
  invocation.table = clone_table(*options);
  invocation.parse = [options](const Context& context, const CommandTable& table,
                               const std::vector<std::string>& args) {
    return parse_clone(context, *options, table, args);
  };
  invocation.run = [options](Context& context) { return run_submit(context, *options); };
  return invocation;
}

Invocation submit_command() {
  auto options = std::make_shared<SubmitOptions>();
  Invocation invocation;
  invocation.table = submit_table(*options);
  invocation.parse = [options](const Context& context, const CommandTable& table,
                               const std::vector<std::string>& args) {
    return parse_submit(context, *options, table, args);
  };
  invocation.run = [options](Context& context) { return run_submit(context, *options); };
  return invocation;
}

} // namespace dtrain
