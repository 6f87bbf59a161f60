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
           "Who reads what: file (each worker files of its own, NAME-00000-of-00004 and so on), "
           "data (each reads all and takes its part), off (each takes all); auto: file where "
           "there are as many files as workers, else data [auto]",
       .group = group,
       .complete = dtrain::Complete::choices,
       .choices = {"auto", "file", "data", "off"}},
      {.flags = "--drop-remainder",
       .target = &o.drop_remainder,
       .metavar = "",
       .help = "Leave out the last step of the epochs where samples do not fill it; without, it is "
               "filled with the first ones of the next epoch",
       .group = group},
      {.flags = "--epochs",
       .target = &o.epochs,
       .metavar = "N",
       .help = "Times that every training sample is seen [12]",
       .group = group,
       .minimum = 1,
       .maximum = 1'000'000},
      {.flags = "--steps",
       .target = &o.steps,
       .metavar = "N",
       .help = "Stop after step N instead, resumed steps counted [as --epochs takes]",
       .group = group,
       .minimum = 1},
      {.flags = "--batch-size",
       .target = &o.batch_size,
       .metavar = "N",
       .help = "Samples on each rank that go forward and backward together; the global batch is N "
               "times the ranks, times --accumulation-steps [64]",
       .group = group,
       .minimum = 1,
       .maximum = k_max_batch},
      {.flags = "--accumulation-steps",
       .target = &o.accumulation_steps,
       .metavar = "N",
       .help = "Times forward and backward whose gradients add up to those of one step [1]",
       .group = group,
       .minimum = 1,
       .maximum = k_max_accumulation},
      {.flags = "--model",
       .target = &o.model,
       .metavar = "NAME",
       .help = "mlp: the multilayer perceptron; cnn: two convolutions of 3 × 3 pixels (32 and 64 "
               "channels), each with 2 × 2 max-pooling, before it [mlp]",
       .group = group,
       .complete = dtrain::Complete::choices,
       .choices = {"mlp", "cnn"}},
      {.flags = "--hidden",
       .target = &o.hidden,
       .metavar = "N[,N...]",
       .help = "Units of the fully connected hidden layers, from the images on [128]",
       .group = group},
      {.flags = "--optimizer",
       .target = &o.optimizer,
       .metavar = "NAME",
       .help = "sgd, adam, adamw or lamb, with PyTorch's meaning of every constant [adam]",
       .group = group,
       .complete = dtrain::Complete::choices,
       .choices = {"sgd", "adam", "adamw", "lamb"}},
      {.flags = "--momentum",
       .target = &o.momentum,
       .metavar = "M",
       .help = "Of sgd: the part of a step that the next one repeats [0.9]",
       .group = group},
      {.flags = "--weight-decay",
       .target = &o.weight_decay,
       .metavar = "DECAY",
       .help = "Pull of every weight to zero: added to the gradient by sgd and adam, apart from it "
               "by adamw and lamb [0]",
       .group = group},
      {.flags = "--clip-norm",
       .target = &o.clip_norm,
       .metavar = "NORM",
       .help = "Scale a step's gradients down to this L2 norm where theirs is larger [not]",
       .group = group},
      {.flags = "--learning-rate",
       .target = &o.learning_rate,
       .metavar = "RATE",
       .help = "The optimizer's, at its highest [0.003]",
       .group = group},
      {.flags = "--lr-schedule",
       .target = &o.lr_schedule,
       .metavar = "HOW",
       .help = "How the learning rate comes down to nothing over the epochs: linear or cosine, or "
               "not at all: constant [cosine]",
       .group = group,
       .complete = dtrain::Complete::choices,
       .choices = {"constant", "linear", "cosine"}},
      {.flags = "--seed",
       .target = &o.seed,
       .metavar = "N",
       .help =
           "Of weights and sample order; the same seed on as many ranks gives the same bits [0]",
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
       .help = "Print a line every so many steps [100]",
       .group = group,
       .minimum = 1},
      {.flags = "--no-progress",
       .target = &o.no_progress,
       .metavar = "",
       .help = "No progress bar, on a terminal either",
       .group = group},
      {.flags = "--logdir",
       .target = &o.logdir,
       .metavar = "DIR",
       .help = "Write TensorBoard event files there [none]",
       .group = group,
       .complete = dtrain::Complete::directory},
      {.flags = "--csv",
       .target = &o.csv,
       .metavar = "FILE",
       .help = "Append each log line's figures there, separated by commas [none]",
       .group = group,
       .complete = dtrain::Complete::file},
      {.flags = "--timeline",
       .target = &o.timeline,
       .metavar = "FILE",
       .help = "At the end write there what every rank did when, as a Chrome trace [none]",
       .group = group,
       .complete = dtrain::Complete::file},
      {.flags = "--checkpoint-dir",
       .target = &o.checkpoint_dir,
       .metavar = "DIR",
       .help = "Save the model and all that continuing takes, at the end and as "
               "--checkpoint-every says; the newest two are kept [none]",
       .group = group,
       .complete = dtrain::Complete::directory},
      {.flags = "--checkpoint-every",
       .target = &o.checkpoint_every,
       .metavar = "STEPS",
       .help = "Save every so many steps as well [only at the end]",
       .group = group,
       .minimum = 1},
      {.flags = "--resume",
       .target = &o.resume,
       .metavar = "",
       .help = "Continue from the newest checkpoint in --checkpoint-dir, bit for bit; "
               "start anew where there is none",
       .group = group},
  };
}

} // namespace trainer
