// dtrain-trainer: options → cluster → communicator → data → model → strategy → loop → checkpoint.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>

#include "submit/errors.h"
#include "trainer/benchmark.h"
#include "trainer/checkpoint/inspect.h"
#include "trainer/cluster/cluster.h"
#include "trainer/device/cpu/denormals.h"
#include "trainer/errors.h"
#include "trainer/evaluator.h"
#include "trainer/forecast/print_routes.h"
#include "trainer/options/options.h"
#include "trainer/options/settings.h"
#include "trainer/requeue.h"
#include "trainer/strategy/parameter_server/run.h"
#include "trainer/version.h"

namespace {

constexpr int k_exit_error = 1;
constexpr int k_exit_usage = 2;
constexpr int k_help_width = 100;

void inspect(const std::vector<std::string>& args) {
  std::string folder;
  const dtrain::CommandTable table = trainer::inspect_command(folder);
  if (dtrain::parse_options(table, args)) {
    trainer::inspect_checkpoints(folder);
  } else {
    fmt::print("{}", dtrain::help_text("dtrain-trainer", table, k_help_width));
  }
}

/// As the task that the environment says.
void start(const trainer::TrainerOptions& options) {
  using namespace trainer;
  const RunOptions run = run_options(options);
  const std::optional<PsTask> task = parameter_server_task();
  if (options.plan > 0) {
    print_forecast(forecast_options(options), rank_options(options, cluster_from_env()), run);
  } else if (options.print_routes && task) {
    throw UsageError("--print-plan: ranks of a job with parameter servers reduce nothing among "
                     "themselves; see the servers' log for what goes through them");
  } else if (options.print_routes) {
    print_routes(rank_options(options, cluster_from_env()), run);
  } else if (task) {
    run_parameter_server_task(ps_job(options, *task));
  } else if (is_evaluator_task()) {
    run_evaluator(run, options.data, options.device, options.logdir);
  } else {
    refuse_server_options(options);
    const TrainJob job = train_job(options, cluster_from_env());
    options.benchmark > 0 ? benchmark_training(job.ranks, run, options.benchmark) : train(job);
  }
}

void run(const std::vector<std::string>& args) {
  if (!args.empty() && args.front() == "inspect") {
    inspect({args.begin() + 1, args.end()});
    return;
  }
  trainer::TrainerOptions options = trainer::parse_trainer_options(args);
  if (!options.token_file.empty()) {
    setenv("DTRAIN_JOB_TOKEN", trainer::read_token_file(options.token_file).c_str(), 1);
  }
  if (options.help) {
    fmt::print(
        "{}", dtrain::help_text("dtrain-trainer", trainer::trainer_command(options), k_help_width));
  } else if (options.version) {
    fmt::print("dtrain-trainer {}\n", trainer::trainer_version());
  } else if (options.benchmark_gemm) {
    trainer::benchmark_gemm();
  } else {
    start(options);
  }
}

int fail(int code, const char* message) {
  fmt::print(stderr, "dtrain-trainer: {}\n", message);
  return code;
}

} // namespace

int main(int argc, char** argv) {
  trainer::flush_denormals(); // Before any thread is started.
  trainer::ignore_requeue();
  try {
    run({argv + 1, argv + argc});
    return 0;
  } catch (const trainer::UsageError& error) {
    return fail(k_exit_usage, error.what());
  } catch (const dtrain::UsageError& error) {
    return fail(k_exit_usage, error.what());
  } catch (const trainer::Requeue& asked) {
    return fail(trainer::k_exit_requeue, asked.what());
  } catch (const trainer::PeerError& error) { // Of rank 0, where it has saved what all have.
    return fail(trainer::requeue_is_asked() ? trainer::k_exit_requeue : k_exit_error, error.what());
  } catch (const std::bad_alloc&) {
    return fail(k_exit_error, "out of memory; try a smaller --batch-size");
  } catch (const std::exception& error) {
    return fail(k_exit_error, error.what());
  }
}
