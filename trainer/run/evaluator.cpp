#include "trainer/run/evaluator.h"

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "trainer/checkpoint/checkpoint.h"
#include "trainer/collectives/single_rank.h"
#include "trainer/data/locate.h"
#include "trainer/device/device.h"
#include "trainer/errors.h"
#include "trainer/monitor/console.h"
#include "trainer/monitor/tensorboard.h"
#include "trainer/run/evaluate.h"

namespace trainer {
namespace {

constexpr auto k_look_every = std::chrono::milliseconds(200);

bool is_last(const Progress& progress, const RunOptions& options, std::uint64_t samples) {
  if (options.steps > 0) {
    return progress.step >= options.steps;
  }
  const std::uint64_t end = samples * static_cast<std::uint64_t>(options.epochs);
  return progress.position + (options.drop_remainder ? progress.global_batch - 1 : 0) >= end;
}

/// Checkpoints with a manifest, newest first, with the time at which each was written.
using Finished = std::vector<std::pair<std::string, std::filesystem::file_time_type>>;

Finished finished_in(const std::string& folder) {
  Finished finished;
  for (const NumberedFile& found : numbered_files(folder)) {
    std::error_code gone;
    const auto written = std::filesystem::last_write_time(found.path, gone);
    if (!gone && has_manifest(found.path)) {
      finished.emplace_back(found.path, written);
    }
  }
  return finished;
}

std::optional<std::string> variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

/// dtrain shows an evaluator only its own GPU and gives it no rank.
int own_local_rank() {
  return local_rank_of(parse_tf_config(variable("TF_CONFIG").value_or("{}")), variable);
}

} // namespace

bool is_evaluator_task(const GetEnv& get) {
  const std::string text = get("TF_CONFIG").value_or("");
  return !text.empty() && parse_tf_config(text).task_type == "evaluator";
}

bool is_evaluator_task() { return is_evaluator_task(variable); }

void run_evaluator(const RunOptions& options, const std::string& data_name,
                   const std::string& device_choice, const std::string& logdir) {
  if (options.checkpoint_dir.empty()) {
    throw UsageError(
        "the evaluator of TF_CONFIG needs --checkpoint-dir=DIR, where the workers save");
  }
  const std::unique_ptr<Device> device = make_device(device_choice, own_local_rank());
  const Dataset data = find_dataset({.data = data_name, .shard = AutoShard::data});
  const auto alone = make_single_rank(device.get());
  Replica replica(fitted(options.model, data), options.optimizer, *device);
  Console console(false, false);
  const std::unique_ptr<TensorBoard> board =
      logdir.empty()
          ? nullptr
          : std::make_unique<TensorBoard>((std::filesystem::path(logdir) / "evaluator").string());
  const Progress expected{0, 0, static_cast<std::uint64_t>(options.seed), data.train.count, 0};
  console.say(fmt::format("evaluator: reads checkpoints from {}; {}", options.checkpoint_dir,
                          device->describe()));
  std::string done;
  Finished looked_at; // Whether one is whole is known only by reading all of it.
  for (;;) {
    const Finished finished = finished_in(options.checkpoint_dir);
    if (finished == looked_at) {
      std::this_thread::sleep_for(k_look_every);
      continue;
    }
    const auto newest =
        newest_whole_checkpoint(options.checkpoint_dir, [](const std::string& /*not finished*/) {});
    if (!newest || *newest == done) {
      looked_at = finished;
      continue;
    }
    Progress progress;
    try {
      progress = load_checkpoint(*newest, replica, expected);
    } catch (const DataError&) {
      if (!std::filesystem::exists(*newest)) {
        continue; // A newer checkpoint has replaced it meanwhile.
      }
      throw;
    }
    done = *newest;
    looked_at = finished;
    const auto owner = replica.make_owner(*alone);
    const Score score =
        evaluate(*replica.model, *owner, data.test, *device, options.step.rows_at_once, *alone);
    const auto count = static_cast<double>(score.count);
    const double accuracy = static_cast<double>(score.correct) / count;
    console.say(fmt::format("step {}  held-out accuracy {:.2f} %  loss {:.4f}  ({} {})",
                            progress.step, 100 * accuracy, score.loss / count, with_commas(count),
                            scored_things(data)));
    if (board) {
      board->scalars(progress.step,
                     {{"test/loss", score.loss / count}, {"test/accuracy", accuracy}});
    }
    if (is_last(progress, options, data.train.count)) {
      return;
    }
  }
}

} // namespace trainer
