#include "trainer/options/parts.h"

namespace trainer {
namespace {

constexpr std::int64_t k_max_batch = 1 << 20;
constexpr std::int64_t k_max_accumulation = 1 << 12;

} // namespace

std::vector<dtrain::Option> training_flags(TrainerOptions& o) {
  const std::string group = "Training";
  return {
      {.flags = "--data",
       .target = &o.data,
       .metavar = "DATA",
       .help = "Folder with MNIST's four IDX files (plain or .gz), or mnist or fashion-mnist: "
               "Debian's package if installed, else the cache, else downloaded [fashion-mnist]",
       .group = group,
       .complete = dtrain::Complete::directory},
      {.flags = "--auto-shard",
       .target = &o.auto_shard,
       .metavar = "HOW",
       .help =
           "How workers share the data: file (each reads its own files, NAME-00000-of-00004 and so "
           "on), data (each reads all files and takes its part), off (each takes all of it), or "
           "auto (file if there are at least as many files as workers, else data) [auto]",
       .group = group,
       .complete = dtrain::Complete::choices,
       .choices = {"auto", "file", "data", "off"}},
      {.flags = "--drop-remainder",
       .target = &o.drop_remainder,
       .metavar = "",
       .help = "Drop the last, incomplete batch of the run; otherwise it is filled up with the "
               "first samples of another epoch",
       .group = group},
      {.flags = "--epochs",
       .target = &o.epochs,
       .metavar = "N",
       .help = "Passes over the training data [12]",
       .group = group,
       .minimum = 1,
       .maximum = 1'000'000},
      {.flags = "--steps",
       .target = &o.steps,
       .metavar = "N",
       .help = "Stop after step N, counting the steps before --resume [as many as --epochs takes]",
       .group = group,
       .minimum = 1},
      {.flags = "--batch-size",
       .target = &o.batch_size,
       .metavar = "N",
       .help = "Samples per rank in one forward and backward pass; the global batch is N times the "
               "number of ranks, times --accumulation-steps [64]",
       .group = group,
       .minimum = 1,
       .maximum = k_max_batch},
      {.flags = "--accumulation-steps",
       .target = &o.accumulation_steps,
       .metavar = "N",
       .help = "Forward and backward passes whose gradients are added up for one step [1]",
       .group = group,
       .minimum = 1,
       .maximum = k_max_accumulation},
      {.flags = "--model",
       .target = &o.model,
       .metavar = "NAME",
       .help = "mlp: the multilayer perceptron; cnn: the same behind two 3 × 3 convolutions (32 "
               "and 64 channels), each with 2 × 2 max-pooling [mlp]",
       .group = group,
       .complete = dtrain::Complete::choices,
       .choices = {"mlp", "cnn"}},
      {.flags = "--hidden",
       .target = &o.hidden,
       .metavar = "N[,N...]",
       .help = "Units of the fully connected hidden layers, first layer first [128]",
       .group = group},
      {.flags = "--optimizer",
       .target = &o.optimizer,
       .metavar = "NAME",
       .help = "sgd, adam, adamw or lamb, with PyTorch's definitions and constants [adam]",
       .group = group,
       .complete = dtrain::Complete::choices,
       .choices = {"sgd", "adam", "adamw", "lamb"}},
      {.flags = "--momentum",
       .target = &o.momentum,
       .metavar = "M",
       .help = "Momentum of sgd [0.9]",
       .group = group},
      {.flags = "--weight-decay",
       .target = &o.weight_decay,
       .metavar = "DECAY",
       .help = "Weight decay: an L2 term of the gradient with sgd and adam, decoupled with adamw "
               "and lamb [0]",
       .group = group},
      {.flags = "--clip-norm",
       .target = &o.clip_norm,
       .metavar = "NORM",
       .help = "Clip the L2 norm of a step's gradients, all together, to this [no clipping]",
       .group = group},
      {.flags = "--learning-rate",
       .target = &o.learning_rate,
       .metavar = "RATE",
       .help = "Peak learning rate [0.003]",
       .group = group},
      {.flags = "--lr-schedule",
       .target = &o.lr_schedule,
       .metavar = "HOW",
       .help =
           "Learning rate schedule: linear or cosine decay to 0 over the run, or constant [cosine]",
       .group = group,
       .complete = dtrain::Complete::choices,
       .choices = {"constant", "linear", "cosine"}},
      {.flags = "--seed",
       .target = &o.seed,
       .metavar = "N",
       .help = "Seed of weights and sample order; the same seed and number of ranks give "
               "bit-identical results [0]",
       .group = group,
       .minimum = 0},
  };
}

std::vector<dtrain::Option> output_flags(TrainerOptions& o) {
  const std::string group = "Output";
  return {
      {.flags = "--log-every",
       .target = &o.log_every,
       .metavar = "STEPS",
       .help = "Print a line every this many steps [100]",
       .group = group,
       .minimum = 1},
      {.flags = "--no-progress",
       .target = &o.no_progress,
       .metavar = "",
       .help = "Show no progress bar, even on a terminal",
       .group = group},
      {.flags = "--logdir",
       .target = &o.logdir,
       .metavar = "DIR",
       .help = "Write TensorBoard event files to this folder [none]",
       .group = group,
       .complete = dtrain::Complete::directory},
      {.flags = "--csv",
       .target = &o.csv,
       .metavar = "FILE",
       .help = "Append the figures of each log line to this file, as CSV [none]",
       .group = group,
       .complete = dtrain::Complete::file},
      {.flags = "--timeline",
       .target = &o.timeline,
       .metavar = "FILE",
       .help = "At the end, write what every rank did when to this file, as a Chrome trace [none]",
       .group = group,
       .complete = dtrain::Complete::file},
      {.flags = "--checkpoint-dir",
       .target = &o.checkpoint_dir,
       .metavar = "DIR",
       .help = "Save checkpoints (the model, and all that --resume needs) here: at the end, and "
               "every --checkpoint-every steps; the newest two are kept [none]",
       .group = group,
       .complete = dtrain::Complete::directory},
      {.flags = "--checkpoint-every",
       .target = &o.checkpoint_every,
       .metavar = "STEPS",
       .help = "Save a checkpoint every this many steps [only at the end]",
       .group = group,
       .minimum = 1},
      {.flags = "--resume",
       .target = &o.resume,
       .metavar = "",
       .help = "Continue from the newest checkpoint in --checkpoint-dir, bit for bit; start from "
               "the beginning if there is none",
       .group = group},
  };
}

} // namespace trainer
