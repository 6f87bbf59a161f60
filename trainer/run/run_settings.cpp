#include "trainer/run/run_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "trainer/collectives/agreement.h"
#include "trainer/collectives/records.h"
#include "trainer/errors.h"

namespace trainer {
RunSettings make_run_settings(const RunOptions& options, int ranks, bool is_elastic,
                              const AllSamples& samples) {
  RunSettings settings{};
  settings.batch_size = options.batch_size() * options.accumulation_steps;
  settings.rows_at_once = options.batch_size();
  settings.global_batch = options.global_batch;
  const std::uint64_t global_batch = settings.global_rows(ranks);
  const std::uint64_t total = samples.count * static_cast<std::uint64_t>(options.epochs);
  const auto steps = static_cast<std::int64_t>(
      (total + (options.drop_remainder ? 0 : global_batch - 1)) / global_batch);
  if (steps == 0) {
    throw UsageError(fmt::format("--drop-remainder: {} samples do not fill one step of {}", total,
                                 global_batch));
  }
  fmt::format("{} {}", options.model.name, shape_text(options.model))
      .copy(settings.model.data(), settings.model.size() - 1);
  settings.rule = static_cast<std::int64_t>(options.optimizer.rule);
  settings.momentum = options.optimizer.momentum;
  settings.weight_decay = options.optimizer.weight_decay;
  settings.decays_vectors = options.optimizer.decays_vectors ? 1 : 0;
  settings.beta1 = options.optimizer.beta1;
  settings.beta2 = options.optimizer.beta2;
  settings.epsilon = options.optimizer.epsilon;
  settings.clip_norm = options.step.clip_norm;
  settings.steps = options.steps > 0 ? options.steps : steps;
  if (samples.one_pass) {
    settings.steps = std::min(settings.steps, steps);
    settings.one_pass = 1;
  }
  settings.epochs_end = options.steps > 0 ? 0 : total;
  settings.end = !is_elastic         ? 0
                 : options.steps > 0 ? global_batch * static_cast<std::uint64_t>(options.steps)
                                     : total;
  settings.log_every = options.log_every;
  settings.checkpoint_every = options.checkpoint_every;
  settings.seed = static_cast<std::uint64_t>(options.seed);
  settings.samples = samples.count;
  // A run that --steps stops early follows the same schedule, so that it can be resumed.
  const std::uint64_t whole = std::max(
      total, global_batch * static_cast<std::uint64_t>(samples.one_pass ? 0 : options.steps));
  settings.learning_rate = options.learning_rate;
  settings.learning_rate.whole = static_cast<double>(whole);
  settings.learning_rate.update = static_cast<double>(global_batch);
  if (settings.learning_rate.fall ==
      0) { // Defaults: over the whole run; a cycle falls in as many steps as it rises.
    settings.learning_rate.fall =
        options.learning_rate.schedule == LearningRate::Schedule::one_cycle
            ? options.learning_rate.rise
            : static_cast<double>(settings.steps);
  }
  settings.split_by_speed = options.split_by_speed ? 1 : 0;
  settings.wire = static_cast<std::int64_t>(options.step.buckets.wire);
  settings.zero_stage = options.zero_stage;
  settings.precision = static_cast<std::int64_t>(options.precision);
  settings.loss_scale = options.step.loss_scale;
  settings.matmul_precision = options.matmul_precision;
  if (options.zero_stage > 0) {
    settings.bucket_bytes = static_cast<std::int64_t>(options.step.buckets.bytes);
    settings.saves = options.checkpoint_dir.empty() ? 0 : 1;
  }
  settings.timeline = options.timeline.empty() ? 0 : 1;
  return settings;
}

std::string difference(const RunSettings& mine, const RunSettings& first) {
  std::string found;
  const auto compare = [&](const char* what, const auto& a, const auto& b) {
    if (found.empty() && !(a == b)) {
      found = fmt::format("{} is {} and {}", what, a, b);
    }
  };
  compare("--batch-size", mine.rows_at_once, first.rows_at_once);
  compare("--batch-size times --accumulation-steps", mine.batch_size, first.batch_size);
  compare("--global-batch-size", mine.global_batch, first.global_batch);
  compare("the model", std::string(mine.model.data()), std::string(first.model.data()));
  compare("the number of training samples", mine.samples, first.samples);
  if (found.empty() && mine.data != first.data) {
    found = "the data or --auto-shard, although there are as many samples,";
  }
  compare("--seed", mine.seed, first.seed);
  compare("the number of steps", mine.steps, first.steps);
  compare("--zero-stage", mine.zero_stage, first.zero_stage);
  compare("--precision", precision_name(static_cast<Precision>(mine.precision)),
          precision_name(static_cast<Precision>(first.precision)));
  const auto matmul_precision = [](const RunSettings& settings) -> std::string_view {
    return settings.matmul_precision == MatmulPrecision::fp8    ? "fp8"
           : settings.matmul_precision == MatmulPrecision::high ? "high"
                                                                : "highest";
  };
  compare("--matmul-precision", matmul_precision(mine), matmul_precision(first));
  compare("--bytes-per-pack", mine.bucket_bytes, first.bucket_bytes);
  compare("the use of --checkpoint-dir", mine.saves, first.saves);
  compare("--log-every", mine.log_every, first.log_every);
  compare("--checkpoint-every", mine.checkpoint_every, first.checkpoint_every);
  compare("the kind of device, which is to be the same on all (--device=cpu, GPUs of one "
          "architecture, DTRAIN_CPU_KERNELS),",
          std::string_view(mine.kernels.data()), std::string_view(first.kernels.data()));
  compare("the learning rate", mine.learning_rate.text(), first.learning_rate.text());
  if (found.empty() && !(mine == first)) {
    found = "--optimizer or its constants, --clip-norm, the loss scale, --batch-split, --timeline "
            "or --communication-data-type";
  }
  return found;
}

void check_same_settings(const RunSettings& settings, Communicator& communicator) {
  const std::vector<RunSettings> all = all_gather(communicator, settings, "settings");
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (const std::string differs = difference(all[rank], all.front()); !differs.empty()) {
      throw_on_all_ranks(
          communicator,
          fmt::format("{} and {} differ: {}; start all ranks with the same flags and data",
                      communicator.name(static_cast<int>(rank)), communicator.name(0), differs));
    }
  }
}

void join_settings(RunSettings& settings, int source, Communicator& communicator) {
  RunSettings first = settings;
  communicator.broadcast(std::as_writable_bytes(std::span(&first, 1)), source, "settings");
  settings.steps = first.steps;
  settings.end = first.end;
  settings.learning_rate.whole = first.learning_rate.whole;
  settings.learning_rate.update = first.learning_rate.update;
  settings.learning_rate.fall = first.learning_rate.fall;
  if (const std::string other = difference(settings, first); !other.empty()) {
    throw UsageError(fmt::format("this rank and the job that it would join differ: {}; start it "
                                 "with the same flags and data",
                                 other));
  }
}

} // namespace trainer
