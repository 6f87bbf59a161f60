// dtrain-trainer: options → cluster → communicator → data → model → strategy → loop → checkpoint.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <functional>

#include "submit/errors.h"
#include "submit/options/this_program.h"
#include "trainer/checkpoint/inspect.h"
#include "trainer/cluster/cluster.h"
#include "trainer/device/cpu/denormals.h"
#include "trainer/device/cuda/cuda_device.h"
#include "trainer/errors.h"
#include "trainer/forecast/memory_plan.h"
#include "trainer/forecast/print_routes.h"
#include "trainer/options/batch.h"
#include "trainer/options/options.h"
#include "trainer/options/settings.h"
#include "trainer/run/benchmark.h"
#include "trainer/run/check_gpus.h"
#include "trainer/run/evaluator.h"
#include "trainer/run/fill.h"
#include "trainer/run/generate.h"
#include "trainer/run/requeue.h"
#include "trainer/strategy/parameter_server/task.h"
#include "trainer/text/tokenize.h"
#include "trainer/version.h"

namespace {

constexpr int k_exit_error = 1;
constexpr int k_exit_usage = 2;
constexpr int k_help_width = 100;

/// `dtrain-trainer inspect DIR` and the like. False: the words name no such command.
bool run_command(const std::vector<std::string>& words) {
  std::string folder;
  trainer::TokenizeOptions text;
  trainer::FillOptions blanks;
  trainer::GenerateOptions more;
  trainer::GpuCheckOptions gpus;
  const std::pair<dtrain::CommandTable, std::function<void()>> commands[] = {
      {trainer::inspect_command(folder), [&] { trainer::inspect_checkpoints(folder); }},
      {trainer::tokenize_command(text), [&] { trainer::tokenize(text); }},
      {trainer::fill_command(blanks), [&] { trainer::fill(blanks); }},
      {trainer::generate_command(more), [&] { trainer::generate(more); }},
      {trainer::check_gpus_command(gpus), [&] { trainer::check_gpus(gpus); }}};
  for (const auto& [table, run] : commands) {
    if (words.empty() || words.front() != table.name) {
      continue;
    }
    if (dtrain::parse_options(table, {words.begin() + 1, words.end()})) {
      run();
    } else {
      fmt::print("{}", dtrain::help_text("dtrain-trainer", table, k_help_width));
    }
    return true;
  }
  return false;
}

/// As the task that the environment says.
void start(trainer::TrainerOptions options) {
  using namespace trainer;
  const std::optional<PsTask> task = parameter_server_task();
  const RankOptions alone; // A server's task and the evaluator's have a batch of their own.
  const RankOptions own =
      task || is_evaluator_task() ? alone : rank_options(options, cluster_from_env());
  const int ranks = task               ? static_cast<int>(task->workers.size())
                    : options.plan > 0 ? static_cast<int>(options.plan)
                                       : own.cluster.world_size * own.replicas();
  const std::string batch = settle_batch(options, ranks, !task && is_elastic(options, own.cluster));
  if (!task && own.cluster.rank == 0) {
    for (const std::string& warning : options.warnings) {
      fmt::print(stderr, "dtrain-trainer: {}\n", warning);
    }
    fmt::print(stderr, "{}", batch.empty() ? "" : fmt::format("dtrain-trainer: {}\n", batch));
  }
  const RunOptions run = run_options(options);
  if (options.plan_memory && task) {
    throw UsageError("--plan-memory: does not support jobs with parameter servers");
  }
  if (options.plan_memory) {
    print_memory_plan(ranks, own, run, data_options(options));
  } else if (options.plan > 0) {
    print_forecast(forecast_options(options), rank_options(options, cluster_from_env()), run);
  } else if (options.print_routes && task) {
    throw UsageError("--print-plan: workers of a job with parameter servers reduce nothing between "
                     "each other; see the servers' log for their traffic");
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

void run(std::vector<std::string> args) {
  if (!args.empty() && args.front() == "help") {
    args.erase(args.begin());
    if (args.empty()) {
      args.emplace_back("--help");
    } else if (run_command({args.front(), "--help"})) {
      return;
    }
  }
  if (run_command(args)) {
    return;
  }
  trainer::TrainerOptions options = trainer::parse_trainer_options(args);
  if (!options.token_file.empty()) {
    setenv("DTRAIN_JOB_TOKEN", trainer::read_token_file(options.token_file).c_str(), 1);
  }
  if (options.cuda_launch_blocking) {
    setenv(trainer::k_cuda_launch_blocking, "1", 1); // CUDA reads it too.
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
  dtrain::name_process();
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
    return fail(k_exit_error,
                "out of memory: use a smaller --batch-size or a smaller model (--hidden, --layers, "
                "--classes)");
  } catch (const std::exception& error) {
    return fail(k_exit_error, error.what());
  }
}
