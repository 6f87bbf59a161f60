#include "cli/commands.h"
#include "cli/exit_codes.h"
#include "cli/target.h"
#include "submit/errors.h"

#include <fmt/format.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include <unistd.h>

namespace dtrain {
namespace {

struct BoardOptions {
  std::string name;
  int port = 0;
  TargetOptions target;
};

CommandTable board_table(BoardOptions& options) {
  CommandTable table = {
      .name = "tensorboard",
      .summary = "Look at a job in TensorBoard",
      .description = "Prints the address of the TensorBoard that runs beside the job. If it runs "
                     "in a cluster, forwards a local port to it until Ctrl-C. If a local job has "
                     "ended, or has no TensorBoard, runs one here on its --logdir until Ctrl-C.",
      .examples = {"dtrain tensorboard mnist"},
      .options = {job_argument(&options.name),
                  {.flags = "-p,--port",
                   .target = &options.port,
                   .metavar = "N",
                   .help = "Local port to forward (default: any free one)"}}};
  add_target(table, options.target);
  return table;
}

int run_board(Context& context, const BoardOptions& options) {
  const Target target = open_target(context, options.target);
  const JobStatus job = target.status(options.name);
  constexpr int k_last_port = 65535;
  if (options.port < 0 || options.port > k_last_port) {
    throw UsageError(fmt::format("--port={}: must be 0 to {}", options.port, k_last_port));
  }
  const auto signal = target.backend->forward_tensorboard(target.job(options.name), options.port,
                                                          [&](const std::string& url) {
                                                            context.out.write(url + "\n");
                                                            context.out.flush();
                                                          });
  if (signal) {
    return *signal == SIGTERM ? k_exit_terminated : k_exit_interrupted;
  }
  if (!job.tensorboard.empty() && !is_final(job.phase)) {
    context.out.write(job.tensorboard + "\n");
    return 0;
  }
  const std::string logdir = "--logdir=" + target.backend->spec(target.job(options.name)).logdir;
  context.out.flush();
  execlp("tensorboard", "tensorboard", logdir.c_str(), "--host=localhost", nullptr);
  throw Error(fmt::format("cannot run tensorboard: {}; install it with: pip install tensorboard",
                          std::strerror(errno)));
}

} // namespace

Invocation tensorboard_command() { return bind(board_table, run_board); }

} // namespace dtrain
