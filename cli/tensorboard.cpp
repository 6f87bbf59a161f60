#include "cli/commands.h"
#include "cli/target.h"
#include "submit/errors.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>

#include <unistd.h>

namespace dtrain {
namespace {

struct BoardOptions {
  std::string name;
  TargetOptions target;
};

CommandTable board_table(BoardOptions& options) {
  CommandTable table = {
      .name = "tensorboard",
      .summary = "Look at a job in TensorBoard",
      .description = "Prints the address of the TensorBoard that runs beside the job. Of a job "
                     "that has ended, or has none, runs one here on its --logdir until Ctrl-C.",
      .examples = {"dtrain tensorboard mnist"},
      .options = {job_argument(options.name)}};
  add_target(table, options.target);
  return table;
}

int run_board(Context& context, const BoardOptions& options) {
  const Target target = open_target(context, options.target);
  const JobStatus job = target.status(options.name);
  if (!job.tensorboard.empty() && !is_final(job.phase)) {
    context.out.write(job.tensorboard + "\n");
    return 0;
  }
  const std::string logdir = "--logdir=" + target.backend->spec(target.job(options.name)).logdir;
  context.out.flush();
  execlp("tensorboard", "tensorboard", logdir.c_str(), "--host=localhost", nullptr);
  throw Error(fmt::format("cannot run tensorboard: {}; pip install tensorboard brings it",
                          std::strerror(errno)));
}

} // namespace

Invocation tensorboard_command() { return bind(board_table, run_board); }

} // namespace dtrain
