#include "trainer/options/options.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trainer/errors.h"
#include "trainer/options/deepspeed.h"
#include "trainer/options/optimizer_params.h"
#include "trainer/options/parts.h"

namespace trainer {

dtrain::CommandTable trainer_command(TrainerOptions& options) {
  dtrain::CommandTable table;
  table.name = ""; // The program is the command.
  table.summary = "Train an image classifier, or a language model, on one or many ranks";
  table.description =
      "Trains a multilayer perceptron 784-128-10 (or with other widths, --hidden), or with "
      "--model=cnn a small convolutional network, with Adam on Fashion-MNIST, MNIST or files of "
      "their format; with --model=bert, roberta or gpt2 a transformer that learns to predict "
      "masked words, or the next word, of a text. Started as several ranks (by dtrain submit, "
      "torchrun, mpirun or srun) it trains one model, averaging gradients with a ring "
      "all-reduce.\n\nIts rank comes from TF_CONFIG, RANK and WORLD_SIZE, OMPI_COMM_WORLD_RANK or "
      "SLURM_PROCID, the first that is set; with none it trains alone.\n\nOn SIGUSR1 (see "
      "--save-on-signal), a run with --checkpoint-dir saves a checkpoint and ends with exit code "
      "75, which asks a scheduler to restart it.\n\ndtrain-trainer inspect DIR shows the "
      "checkpoints that a run has saved, dtrain-trainer tokenize turns text into tokens for a "
      "language model, dtrain-trainer fill predicts masked words of a text, dtrain-trainer "
      "generate "
      "continues a text, and dtrain-trainer check-gpus measures a machine's GPUs.";
  table.examples = {"# Train alone, on Fashion-MNIST",
                    "dtrain-trainer",
                    "# Three ranks on this machine",
                    "dtrain submit --workers=3 --wait",
                    "# Save every 500 steps, and continue after an interruption",
                    "dtrain-trainer --checkpoint-dir=run1 --checkpoint-every=500 --resume"};
  for (auto part :
       {training_flags, output_flags, machine_flags, parameter_server_flags, other_flags}) {
    for (dtrain::Option& option : part(options)) {
      table.options.push_back(std::move(option));
    }
  }
  return table;
}

namespace {

struct ScheduleFlag {
  const char* flag;
  double ScheduleFlags::*value;
  double LearningRate::*sets;
  std::vector<LearningRate::Schedule> of;
};

const std::vector<ScheduleFlag>& schedule_flags() {
  using Flags = ScheduleFlags;
  using Rate = LearningRate;
  constexpr auto k_decay = Rate::Schedule::warmup_decay;
  constexpr auto k_cosine = Rate::Schedule::warmup_cosine;
  constexpr auto k_cycle = Rate::Schedule::one_cycle;
  static const std::vector<ScheduleFlag> flags = {
      {"--total-steps", &Flags::total_steps, &Rate::fall, {k_decay, k_cosine}},
      {"--cosine-to", &Flags::cosine_to, &Rate::last, {k_cosine}},
      {"--cycle-down-steps", &Flags::cycle_down_steps, &Rate::fall, {k_cycle}},
      {"--cycle-stairs", &Flags::cycle_stairs, &Rate::rise_stairs, {k_cycle}},
      {"--cycle-down-stairs", &Flags::cycle_down_stairs, &Rate::fall_stairs, {k_cycle}},
      {"--cycle-decay-steps", &Flags::cycle_decay_steps, &Rate::decay_every, {k_cycle}},
      {"--cycle-decay-rate", &Flags::cycle_decay_rate, &Rate::decay_rate, {k_cycle}}};
  return flags;
}

/// Throws UsageError for those that the chosen schedule does not have.
void apply_schedule_flags(TrainerOptions& options) {
  const LearningRate::Schedule chosen = parse_schedule(options.lr_schedule);
  ScheduleFlags& given = options.schedule_flags;
  LearningRate& rate = options.schedule;
  if (given.cycle_down_stairs < 0 && options.config.empty()) {
    given.cycle_down_stairs = given.cycle_stairs;
  }
  for (const ScheduleFlag& flag : schedule_flags()) {
    const double value = given.*flag.value;
    if (value < 0) {
      continue;
    }
    if (std::find(flag.of.begin(), flag.of.end(), chosen) == flag.of.end()) {
      std::vector<std::string> names;
      for (const LearningRate::Schedule schedule : flag.of) {
        names.push_back(schedule_name(schedule));
      }
      throw UsageError(fmt::format("{}: --lr-schedule={} does not have it; use --lr-schedule={}",
                                   flag.flag, options.lr_schedule, fmt::join(names, " or ")));
    }
    if (!std::isfinite(value)) {
      throw UsageError(fmt::format("{}={}: must be 0 or greater", flag.flag, value));
    }
    rate.*flag.sets = value;
  }
  if ((given.cycle_decay_steps > 0 && rate.decay_rate <= 0) ||
      (given.cycle_decay_rate > 0 && rate.decay_every <= 0)) {
    throw UsageError(
        fmt::format("{} needs the other: give --cycle-decay-steps and "
                    "--cycle-decay-rate, or neither",
                    given.cycle_decay_steps > 0 ? "--cycle-decay-steps" : "--cycle-decay-rate"));
  }
}

/// Flags that the chosen optimizer or schedule does not take. A configuration may say them for the
/// ones that it chooses itself.
void refuse_flags_without_effect(const TrainerOptions& options) {
  const TrainerOptions none;
  const bool is_warming = goes_by_updates(parse_schedule(options.lr_schedule));
  const char* const of_warmup = is_warming                                      ? nullptr
                                : options.schedule.rise != none.schedule.rise   ? "--warmup-steps"
                                : options.schedule.first != none.schedule.first ? "--warmup-from"
                                : options.warmup_type != none.warmup_type       ? "--warmup-type"
                                                                                : nullptr;
  if (of_warmup != nullptr) {
    throw UsageError(fmt::format("{}: --lr-schedule={} has no warmup; use --lr-schedule=warmup, "
                                 "warmup-decay, warmup-cosine or one-cycle",
                                 of_warmup, options.lr_schedule));
  }
  for (const OptimizerParam& param : optimizer_params()) {
    if (param.value != nullptr && !param.is_of(options.optimizer) &&
        options.*param.value != none.*param.value) {
      throw UsageError(fmt::format("{}: --optimizer={} does not have it; drop it", param.flag,
                                   options.optimizer));
    }
  }
}

} // namespace

TrainerOptions parse_trainer_options(const std::vector<std::string>& args) {
  const auto parse = [&](TrainerOptions& to) {
    return dtrain::parse_options(trainer_command(to), args);
  };
  TrainerOptions options;
  options.help = !parse(options);
  if (options.help || options.version) {
    return options;
  }
  if (!options.config.empty()) {
    TrainerOptions configured;
    for (const auto& [flag, value] :
         {std::pair("--global-batch-size", options.global_batch),
          std::pair("--batch-size", options.batch_size),
          std::pair("--accumulation-steps", options.accumulation_steps)}) {
      if (value > 0) {
        configured.given.emplace_back(flag);
      }
    }
    configured.precision = options.precision; // What some keys of the file depend on.
    configured.optimizer = options.optimizer;
    configured.warnings = read_deepspeed_config(options.config, configured);
    parse(configured); // Flags go before the file.
    options = std::move(configured);
  }
  apply_schedule_flags(options);
  if (options.consecutive_hysteresis) {
    options.loss_scale.is_consecutive = 1;
  }
  if (!(options.learning_rate > 0)) {
    throw UsageError(
        fmt::format("--learning-rate={}: must be greater than 0", options.learning_rate));
  }
  model_options(options); // Refused here, before anything is started.
  for (const auto& [flag, value] :
       {std::pair("--momentum", options.momentum),
        std::pair("--weight-decay", options.weight_decay), std::pair("--beta1", options.beta1),
        std::pair("--beta2", options.beta2), std::pair("--epsilon", options.epsilon),
        std::pair("--warmup-from", options.schedule.first),
        std::pair("--warmup-steps", options.schedule.rise),
        std::pair("--clip-norm", options.clip_norm),
        std::pair("--loss-scale", options.loss_scale.fixed),
        std::pair("--min-loss-scale", options.loss_scale.least)}) {
    if (!(value >= 0) || !std::isfinite(value)) {
      throw UsageError(fmt::format("{}={}: must be 0 or greater", flag, value));
    }
  }
  if (options.beta1 >= 1 || options.beta2 >= 1) {
    throw UsageError(
        fmt::format("--beta1={}, --beta2={}: must be less than 1", options.beta1, options.beta2));
  }
  if (options.config.empty()) {
    refuse_flags_without_effect(options);
  }
  if (options.precision != "fp16" && options.config.empty() &&
      !(options.loss_scale == TrainerOptions().loss_scale)) {
    throw UsageError("--loss-scale and its options need --precision=fp16");
  }
  if (options.no_check_grad_overflow && (options.precision != "bf16" || options.clip_norm > 0)) {
    throw UsageError(fmt::format(
        "--no-check-grad-overflow{} needs --precision=bf16, and no --clip-norm, which looks at all "
        "gradients; drop it{}",
        options.config.empty() ? "" : " (or bf16.check_grad_overflow false in --config)",
        options.config.empty() ? "" : ", or give --clip-norm=0: --config's is 1 by default"));
  }
  if (options.checkpoint_dir.empty() && (options.resume || options.checkpoint_every > 0)) {
    throw UsageError(fmt::format("{}: needs --checkpoint-dir=DIR",
                                 options.resume ? "--resume" : "--checkpoint-every"));
  }
  const TrainerOptions none;
  if (options.checkpoint_dir.empty() &&
      (options.keep != none.keep || options.save_on_signal != none.save_on_signal)) {
    throw UsageError(fmt::format("{}: needs --checkpoint-dir=DIR",
                                 options.keep != none.keep ? "--keep" : "--save-on-signal"));
  }
  if (options.deterministic) {
    const char* loose = options.batch_split == "speed" ? "--batch-split=speed"
                        : options.update == "async"    ? "--update=async"
                        : options.backup_workers > 0   ? "--backup-workers"
                                                       : nullptr;
    if (loose != nullptr) {
      throw UsageError(fmt::format(
          "--deterministic: {} depends on timing, so runs are not bit-identical; drop one of them",
          loose));
    }
  }
  if (options.communication == "mpi" && options.transport != "auto") {
    throw UsageError(fmt::format("--transport={}: applies to the ring only; MPI chooses its own",
                                 options.transport));
  }
  return options;
}

} // namespace trainer
