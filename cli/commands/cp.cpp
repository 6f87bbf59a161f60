#include "backends/support/files/received_files.h"
#include "backends/support/progress.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/job_path.h"
#include "cli/output/steps.h"
#include "cli/target.h"
#include "submit/errors.h"

#include <fmt/format.h>

#include <chrono>
#include <string>
#include <vector>

namespace dtrain {
namespace {

struct CpOptions {
  std::string source;
  std::string destination;
  std::vector<std::string> instances; ///< At most one.
  std::string container;              ///< Accepted, and not used.
  bool quiet = false;
  TargetOptions target;
};

CommandTable cp_table(CpOptions& options) {
  CommandTable table = {
      .name = "cp",
      .summary = "Copy a job's files here",
      .description =
          "Copies a file or folder of a job's instance to this machine. A relative PATH starts at "
          "the folder that the instance was started in (with --sync-mode, the folder of the code). "
          "DEST changes only once the whole copy has arrived; files replace existing files, and "
          "folders are merged. Links that lead elsewhere, sockets and devices are skipped and "
          "listed. The files of an instance that has ended can still be copied, unless it ran in a "
          "container. To send files to a job, use --sync-mode or --data of 'dtrain submit'.",
      .examples = {"dtrain cp mnist:ckpt .", "dtrain cp mnist/worker-1:profile.json worker-1.json",
                   "dtrain cp mnist:/data/out ./out"},
      .options = {
          {.flags = "JOB:PATH",
           .target = &options.source,
           .help = "The job, or JOB/INSTANCE, and the file or folder",
           .complete = Complete::job,
           .required = true,
           .positional = true},
          {.flags = "DEST",
           .target = &options.destination,
           .help = "Destination: an existing folder, or a new name",
           .complete = Complete::file,
           .required = true,
           .positional = true},
          instance_argument(&options.instances),
          container_argument(&options.container),
          {.flags = "-q,--quiet", .target = &options.quiet, .help = "Print nothing but errors"}}};
  options.target.needs = Ability::cp;
  add_target(table, options.target);
  return table;
}

std::string copied(const ReceivedFiles& files) {
  return fmt::format("{} file{}, {}", files.files(), files.files() == 1 ? "" : "s",
                     bytes_text(files.bytes()));
}

int run_cp(Context& context, const CpOptions& options) {
  if (!is_job_path(options.source) && is_job_path(options.destination)) {
    throw UsageError("dtrain cp copies from a job, not to one; send files to ranks by --sync-mode "
                     "or --data of dtrain submit");
  }
  const JobPath source = read_job_path(options.source);
  if (!source.instance.empty() && !options.instances.empty()) {
    throw UsageError("the instance is given twice, by -i and before the colon; give one");
  }
  const Target target = open_target(context, options.target);
  const std::string instance = chosen_instance(
      target.status(source.job),
      source.instance.empty() ? options.instances : std::vector<std::string>{source.instance});
  const bool shown = context.err.terminal().is_terminal;
  Steps steps(context.err, options.quiet || !shown);
  const NoteInterrupt interrupt;
  const auto check = [&] {
    if (interrupt.signal() != 0) {
      throw Interrupted("interrupted; nothing was copied", interrupt.signal());
    }
  };
  ReceivedFiles files(options.destination, source.name());
  auto next_told = std::chrono::steady_clock::now();
  try {
    try {
      target.backend->read_files(
          target.job(source.job), instance, source.path, [&](std::string_view bytes) {
            check();
            files.add(bytes);
            constexpr auto k_interval = std::chrono::milliseconds(100);
            if (const auto now = std::chrono::steady_clock::now(); now >= next_told) {
              steps.tell({.step = SubmitStep::copy, .text = copied(files)});
              next_told = now + k_interval;
            }
          });
    } catch (const EngineError&) { // A Ctrl-C ends what we have started, too.
      check();
      throw;
    }
    check();
    files.place();
  } catch (const Error&) {
    steps.fail();
    throw;
  }
  const auto text = fmt::format("{} to {}", copied(files), printable(files.path()));
  steps.tell({.step = SubmitStep::copy, .done = true, .text = text});
  if (!options.quiet && !shown) {
    context.note(fmt::format("copy: {}", text));
  }
  for (const auto& each : files.left_out()) {
    context.note(fmt::format("skipped {}", each));
  }
  return 0;
}

} // namespace

Invocation cp_command() { return bind(cp_table, run_cp); }

} // namespace dtrain
