#include "trainer/options/options.h"

#include <cmath>

#include <fmt/format.h>

#include "trainer/errors.h"
#include "trainer/options/parts.h"

namespace trainer {

dtrain::CommandTable trainer_command(TrainerOptions& options) {
  dtrain::CommandTable table;
  table.name = ""; // The program is the command.
  table.summary = "Train an image classifier on one or many ranks";
  table.description =
      "Trains the multilayer perceptron 784-128-10 (or --hidden of other widths), or with "
      "--model=cnn a small convolutional network, with Adam on Fashion-MNIST, MNIST or files of "
      "their format. Started as several ranks (by dtrain submit, torchrun, mpirun or srun) it "
      "trains them as one, averaging gradients with a ring all-reduce.\n\n"
      "Who it is among the ranks it reads from TF_CONFIG, RANK and WORLD_SIZE, "
      "OMPI_COMM_WORLD_RANK or SLURM_PROCID, the first that is set; with none it trains alone.\n\n"
      "Asked by SIGUSR1, a run with --checkpoint-dir saves a checkpoint and ends with exit code "
      "75, "
      "which asks a scheduler to start it anew.\n\n"
      "dtrain-trainer inspect DIR shows the checkpoints that a run has saved.";
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

TrainerOptions parse_trainer_options(const std::vector<std::string>& args) {
  TrainerOptions options;
  const dtrain::CommandTable table = trainer_command(options);
  options.help = !dtrain::parse_options(table, args);
  if (options.help || options.version) {
    return options;
  }
  if (!(options.learning_rate > 0)) {
    throw UsageError(
        fmt::format("--learning-rate={}: must be greater than 0", options.learning_rate));
  }
  parse_hidden(options.hidden); // Refused here, before anything is started.
  for (const auto& [flag, value] : {std::pair("--momentum", options.momentum),
                                    std::pair("--weight-decay", options.weight_decay),
                                    std::pair("--clip-norm", options.clip_norm)}) {
    if (!(value >= 0) || !std::isfinite(value)) {
      throw UsageError(fmt::format("{}={}: must be 0 or greater", flag, value));
    }
  }
  if (options.checkpoint_dir.empty() && (options.resume || options.checkpoint_every > 0)) {
    throw UsageError(fmt::format("{}: needs --checkpoint-dir=DIR",
                                 options.resume ? "--resume" : "--checkpoint-every"));
  }
  if (options.deterministic) {
    const char* loose = options.batch_split == "speed" ? "--batch-split=speed"
                        : options.update == "async"    ? "--update=async"
                        : options.backup_workers > 0   ? "--backup-workers"
                                                       : nullptr;
    if (loose != nullptr) {
      throw UsageError(fmt::format("--deterministic: {} follows the clock, and a run is not "
                                   "repeated bit for bit; leave one of them out",
                                   loose));
    }
  }
  if (options.communication == "nccl") {
    throw UsageError(
        "--communication=nccl: this build takes CUDA's gradients through the host, and "
        "has no NCCL; use auto, ring or mpi");
  }
  if (options.communication == "mpi" && options.transport != "auto") {
    throw UsageError(
        fmt::format("--transport={}: is the ring's; MPI chooses its own", options.transport));
  }
  return options;
}

} // namespace trainer
