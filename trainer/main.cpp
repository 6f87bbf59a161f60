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
#include "trainer/forecast/print_forecast.h"
#include "trainer/forecast/print_routes.h"
#include "trainer/options.h"
#include "trainer/strategy/parameter_server/run.h"
#include "trainer/train.h"

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
  } else if (options.plan > 0) {
    trainer::print_forecast(options);
  } else if (options.print_routes) {
    trainer::print_routes(options);
  } else if (const auto task = trainer::parameter_server_task()) {
    trainer::run_parameter_server_task(*task, options);
  } else if (trainer::is_evaluator_task()) {
    trainer::run_evaluator(options);
  } else {
    trainer::refuse_server_options(options);
    options.benchmark > 0 ? trainer::benchmark_training(options) : trainer::train(options);
  }
}

int fail(int code, const char* message) {
  fmt::print(stderr, "dtrain-trainer: {}\n", message);
  return code;
}

} // namespace

int main(int argc, char** argv) {
  trainer::flush_denormals(); // Before any thread is started.
  try {
    run({argv + 1, argv + argc});
    return 0;
  } catch (const trainer::UsageError& error) {
    return fail(k_exit_usage, error.what());
  } catch (const dtrain::UsageError& error) {
    return fail(k_exit_usage, error.what());
  } catch (const std::bad_alloc&) {
    return fail(k_exit_error, "out of memory; try a smaller --batch-size");
  } catch (const std::exception& error) {
    return fail(k_exit_error, error.what());
  }
}
