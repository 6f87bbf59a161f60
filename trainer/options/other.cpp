#include "trainer/options/parts.h"

namespace trainer {
namespace {

constexpr std::int64_t k_max_window = 1'000'000; ///< Seconds.

} // namespace

std::vector<dtrain::Option> output_flags(TrainerOptions& o) {
  const std::string group = "Output";
  return {
      {.flags = "--log-every",
       .target = &o.log_every,
       .metavar = "STEPS",
       .help = "Print a line every N steps [100]",
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
       .help = "Append the values of each log line to this file, as CSV [none]",
       .group = group,
       .complete = dtrain::Complete::file},
      {.flags = "--timeline",
       .target = &o.timeline,
       .metavar = "FILE",
       .help = "At the end, write a timeline of all ranks to this file, as a Chrome trace [none]",
       .group = group,
       .complete = dtrain::Complete::file},
      {.flags = "--checkpoint-dir",
       .target = &o.checkpoint_dir,
       .metavar = "DIR",
       .help = "Save checkpoints (the model, and all that --resume needs) here: at the end, and "
               "every --checkpoint-every steps, while training continues; if all ranks see the "
               "folder, ranks that share a replica save a part each [none]",
       .group = group,
       .complete = dtrain::Complete::directory},
      {.flags = "--checkpoint-every",
       .target = &o.checkpoint_every,
       .metavar = "STEPS",
       .help = "Save a checkpoint every N steps [only at the end]",
       .group = group,
       .minimum = 1},
      {.flags = "--keep",
       .target = &o.keep,
       .metavar = "N",
       .help = "Number of newest checkpoints to keep [2]",
       .group = group,
       .minimum = 1},
      {.flags = "--save-on-signal",
       .target = &o.save_on_signal,
       .metavar = "SIGNAL",
       .help = "Signal on which a run saves a checkpoint and ends with exit code 75, so that a "
               "scheduler restarts it: usr1, term, or both [usr1]",
       .group = group,
       .complete = dtrain::Complete::choices,
       .choices = {"usr1", "term", "both"}},
      {.flags = "--resume",
       .target = &o.resume,
       .metavar = "",
       .help = "Continue from the newest checkpoint in --checkpoint-dir, bit for bit; start from "
               "the beginning if there is none",
       .group = group},
      {.flags = "--export",
       .target = &o.export_folder,
       .metavar = "DIR",
       .help = "At the end, write the model to this folder in Hugging Face's format: "
               "model.safetensors, and for transformers config.json and the vocabulary [none]",
       .group = group,
       .complete = dtrain::Complete::directory},
  };
}

std::vector<dtrain::Option> parameter_server_flags(TrainerOptions& o) {
  const std::string group = "Parameter servers (TF_CONFIG with ps)";
  return {
      {.flags = "--update",
       .target = &o.update,
       .metavar = "MODE",
       .help = "sync: an update averages the gradients of all workers; async: each worker's "
               "gradient is an update [sync]",
       .group = group,
       .complete = dtrain::Complete::choices,
       .choices = {"sync", "async"}},
      {.flags = "--backup-workers",
       .target = &o.backup_workers,
       .metavar = "N",
       .help = "With sync: do not wait for the slowest N workers, and drop their gradients [0]",
       .group = group,
       .minimum = 0},
      {.flags = "--max-staleness",
       .target = &o.max_staleness,
       .metavar = "STEPS",
       .help = "With async: steps that a worker may be ahead of the slowest [no limit]",
       .group = group,
       .minimum = 0},
      {.flags = "--snapshot-dir",
       .target = &o.snapshot_dir,
       .metavar = "DIR",
       .help = "Folder in which a server saves its state to recover after a failure [none]",
       .group = group,
       .complete = dtrain::Complete::directory},
      {.flags = "--snapshot-every",
       .target = &o.snapshot_every,
       .metavar = "UPDATES",
       .help = "Updates between two snapshots; the same on all tasks [1000]",
       .group = group,
       .minimum = 1},
  };
}

std::vector<dtrain::Option> other_flags(TrainerOptions& o) {
  const std::string group = "Other";
  return {
      {.flags = "--benchmark",
       .target = &o.benchmark,
       .metavar = "SECONDS",
       .help = "Train on synthetic samples for five rounds of this many seconds and print "
               "samples/s, of "
               "text tokens/s",
       .group = group,
       .minimum = 0,
       .maximum = k_max_window},
      {.flags = "--plan",
       .target = &o.plan,
       .metavar = "WORKERS",
       .help = "Do not train: measure this machine's speed and its network link (with several "
               "ranks, the link between them), and predict step time and samples/s of every "
               "strategy and the best number of parameter servers",
       .group = group,
       .minimum = 1,
       .maximum = 512},
      {.flags = "--plan-memory",
       .target = &o.plan_memory,
       .metavar = "",
       .help = "Do not train: print the memory that a rank would take at each ZeRO stage, for this "
               "job's ranks or as many as --plan says",
       .group = group},
      {.flags = "--plan-ranks-per-host",
       .target = &o.plan_ranks_per_host,
       .metavar = "N",
       .help = "Workers that share a host's network in the plan [1]",
       .group = group,
       .minimum = 1,
       .maximum = 512},
      {.flags = "--plan-bandwidth",
       .target = &o.plan_bandwidth,
       .metavar = "GB/S",
       .help = "Bandwidth of the plan's links, in 10^9 bytes per second [measured]",
       .group = group},
      {.flags = "--plan-latency",
       .target = &o.plan_latency,
       .metavar = "MICROSECONDS",
       .help = "Latency of the plan's links [measured]",
       .group = group},
      {.flags = "--benchmark-gemm",
       .target = &o.benchmark_gemm,
       .metavar = "",
       .help = "Print the GFLOP/s of the model's matrix products on one core",
       .group = group},
      {.flags = "--version",
       .target = &o.version,
       .metavar = "",
       .help = "Print the version",
       .group = group},
  };
}

} // namespace trainer
