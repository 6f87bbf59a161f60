#include "trainer/options.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "submit/errors.h"
#include "trainer/errors.h"

namespace trainer {
namespace {

using dtrain::Complete;
using dtrain::Option;

constexpr std::int64_t k_max_batch = 1 << 20;
constexpr std::size_t k_max_hidden = 1 << 16;
constexpr std::int64_t k_max_accumulation = 1 << 12;
constexpr std::int64_t k_max_seconds = 1'000'000;
constexpr std::int64_t k_most_bytes_per_pack = std::int64_t{1} << 30;
constexpr std::int64_t k_max_workers = 4096;

/// "512,256"
std::vector<std::size_t> parse_hidden(const std::string& text) {
  std::vector<std::size_t> widths;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    std::size_t width = 0;
    const char* last = text.data() + end;
    const auto [stop, error] = std::from_chars(text.data() + at, last, width);
    if (error != std::errc() || stop != last || width < 1 || width > k_max_hidden) {
      throw UsageError(fmt::format("--hidden={}: must be widths of 1 to {}, as in 512,256",
                                   dtrain::printable(text), k_max_hidden));
    }
    widths.push_back(width);
    at = end + 1;
  }
  return widths;
}

std::vector<Option> training_options(TrainerOptions& o) {
  const std::string group = "Training";
  return {
      {.flags = "--data",
       .target = &o.data,
       .metavar = "DATA",
       .help = "Folder with MNIST's four IDX files (plain or .gz), or mnist or fashion-mnist: "
               "Debian's package if installed, else the cache, else downloaded [fashion-mnist]",
       .group = group,
       .complete = Complete::directory},
      {.flags = "--auto-shard",
       .target = &o.auto_shard,
       .metavar = "HOW",
       .help =
           "Who reads what: file (each worker files of its own, NAME-00000-of-00004 and so on), "
           "data (each reads all and takes its part), off (each takes all); auto: file where "
           "there are as many files as workers, else data [auto]",
       .group = group,
       .complete = Complete::choices,
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
       .complete = Complete::choices,
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
       .complete = Complete::choices,
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
       .complete = Complete::choices,
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

std::vector<Option> output_options(TrainerOptions& o) {
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
       .complete = Complete::directory},
      {.flags = "--csv",
       .target = &o.csv,
       .metavar = "FILE",
       .help = "Append each log line's figures there, separated by commas [none]",
       .group = group,
       .complete = Complete::file},
      {.flags = "--timeline",
       .target = &o.timeline,
       .metavar = "FILE",
       .help = "At the end write there what every rank did when, as a Chrome trace [none]",
       .group = group,
       .complete = Complete::file},
      {.flags = "--checkpoint-dir",
       .target = &o.checkpoint_dir,
       .metavar = "DIR",
       .help = "Save the model and all that continuing takes, at the end and as "
               "--checkpoint-every says; the newest two are kept [none]",
       .group = group,
       .complete = Complete::directory},
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

std::vector<Option> machine_options(TrainerOptions& o) {
  const std::string group = "Machine and network";
  return {
      {.flags = "--strategy",
       .target = &o.strategy,
       .metavar = "NAME",
       .help = "mirrored (replicas of this process), multi-worker or parameter-server, where what "
               "started it has to be such a job; auto: as that is [auto]",
       .group = group,
       .complete = Complete::choices,
       .choices = {"auto", "mirrored", "multi-worker", "parameter-server"}},
      {.flags = "--device",
       .target = &o.device,
       .metavar = "DEVICE",
       .help = "auto, cpu or cuda; cuda is an error where there is none [auto]",
       .group = group,
       .complete = Complete::choices,
       .choices = {"auto", "cpu", "cuda"}},
      {.flags = "--devices",
       .target = &o.devices,
       .metavar = "LIST",
       .help = "Replicas of this process, a thread each, in lockstep: cpu:0,cpu:1; of several "
               "workers each has as many [one]",
       .group = group},
      {.flags = "--cross-device-ops",
       .target = &o.cross_device_ops,
       .metavar = "HOW",
       .help = "How replicas of one process sum gradients: auto (each a share), "
               "reduction-to-one, hierarchical-copy or nccl [auto]",
       .group = group,
       .complete = Complete::choices,
       .choices = {"auto", "reduction-to-one", "hierarchical-copy", "nccl"}},
      {.flags = "--communication",
       .target = &o.communication,
       .metavar = "HOW",
       .help = "What carries gradients between ranks: ring (dtrain's own), mpi (the library of the "
               "mpirun that started them) or nccl (GPUs); auto takes nccl where every rank has a "
               "GPU, else ring [auto]",
       .group = group,
       .complete = Complete::choices,
       .choices = {"auto", "ring", "nccl", "mpi"}},
      {.flags = "--transport",
       .target = &o.transport,
       .metavar = "TRANSPORT",
       .help = "How the ring's ranks exchange gradients: auto, shm (one host) or tcp [auto]",
       .group = group,
       .complete = Complete::choices,
       .choices = {"auto", "shm", "tcp"}},
      {.flags = "--tcp-streams",
       .target = &o.tcp_streams,
       .metavar = "N",
       .help = "Connections to each neighbour in the ring that packs of 4 MiB and more share "
               "[4 between hosts, 1 within]",
       .group = group,
       .minimum = 1,
       .maximum = 64},
      {.flags = "--bytes-per-pack",
       .target = &o.bytes_per_pack,
       .metavar = "BYTES",
       .help = "Gradients that are reduced together, as soon as backward has them; 0: all at once, "
               "at its end [131072]",
       .group = group,
       .minimum = 0,
       .maximum = k_most_bytes_per_pack},
      {.flags = "--communication-data-type",
       .target = &o.communication_data_type,
       .metavar = "TYPE",
       .help = "What gradients travel as: fp32, or half the bytes, rounded: bf16, or fp16, "
               "which cuts off what is past 65504 and below 6e-8; sums are in fp32 [fp32]",
       .group = group,
       .complete = Complete::choices,
       .choices = {"fp32", "bf16", "fp16"}},
      {.flags = "--print-plan",
       .target = &o.print_routes,
       .metavar = "",
       .help = "Do not train: print how this job's ranks would reduce each pack of gradients and "
               "what that sends, and which way they take at which size",
       .group = group},
      {.flags = "--deterministic",
       .target = &o.deterministic,
       .metavar = "",
       .help = "Refuse what would not give the same bits again: --batch-split=speed, "
               "--update=async and --backup-workers; all else always does",
       .group = group},
      {.flags = "--batch-split",
       .target = &o.batch_split,
       .metavar = "HOW",
       .help = "Shares of the global batch: equal, or by the measured speed of each rank, which "
               "trains unlike machines together but not bit for bit the same again [equal]",
       .group = group,
       .complete = Complete::choices,
       .choices = {"equal", "speed"}},
      {.flags = "--min-workers",
       .target = &o.min_workers,
       .metavar = "N",
       .help = "Train on while at least N workers are there: when one dies or hangs the others go "
               "on from memory, and one that starts anew joins them [DTRAIN_MIN_WORKERS, else all "
               "workers have to be there]",
       .group = group,
       .minimum = 1,
       .maximum = k_max_workers},
      {.flags = "--max-workers",
       .target = &o.max_workers,
       .metavar = "N",
       .help = "With --min-workers: more than N wait until one goes [DTRAIN_MAX_WORKERS, else no "
               "bound]",
       .group = group,
       .minimum = 1,
       .maximum = k_max_workers},
      {.flags = "--token-file",
       .target = &o.token_file,
       .metavar = "FILE",
       .help =
           "Where ranks are started by hand: a file, readable by you alone, whose first line is "
           "the secret by which the job's ranks know each other [DTRAIN_JOB_TOKEN, else whoever "
           "reaches their ports may join]",
       .group = group,
       .complete = Complete::file},
      {.flags = "--rendezvous-timeout",
       .target = &o.rendezvous_timeout,
       .metavar = "SECONDS",
       .help = "For all ranks to arrive [60]",
       .group = group,
       .minimum = 1,
       .maximum = k_max_seconds},
      {.flags = "--peer-timeout",
       .target = &o.peer_timeout,
       .metavar = "SECONDS",
       .help = "Silence after which a rank counts as dead [8]",
       .group = group,
       .minimum = 1,
       .maximum = k_max_seconds},
      {.flags = "--collective-timeout",
       .target = &o.collective_timeout,
       .metavar = "SECONDS",
       .help = "Ranks that have waited so long in a collective end, naming who never entered it; "
               "0: never [600]",
       .group = group,
       .minimum = 0,
       .maximum = k_max_seconds},
      {.flags = "--collective-log",
       .target = &o.collective_log,
       .metavar = "DIR",
       .help = "When a rank fails, each writes its last collectives to DIR/rank-N.csv: op, bytes, "
               "name, when entered, how long",
       .group = group,
       .complete = Complete::directory},
  };
}

std::vector<Option> parameter_server_options(TrainerOptions& o) {
  const std::string group = "Parameter servers (TF_CONFIG with ps)";
  return {
      {.flags = "--update",
       .target = &o.update,
       .metavar = "MODE",
       .help = "sync: an update averages all workers' gradients; async: each is an update [sync]",
       .group = group,
       .complete = Complete::choices,
       .choices = {"sync", "async"}},
      {.flags = "--backup-workers",
       .target = &o.backup_workers,
       .metavar = "N",
       .help = "With sync: do not wait for the slowest N workers; what comes late is dropped [0]",
       .group = group,
       .minimum = 0},
      {.flags = "--max-staleness",
       .target = &o.max_staleness,
       .metavar = "STEPS",
       .help = "With async: how far a worker may be ahead of the slowest [no bound]",
       .group = group,
       .minimum = 0},
      {.flags = "--partitioner",
       .target = &o.partitioner,
       .metavar = "HOW",
       .help = "How variables are cut by rows: none, fixed[:SHARDS], min-size[:BYTES[:SHARDS]] or "
               "max-size:BYTES[:SHARDS]; the pieces are placed by bytes [fixed: one a server]",
       .group = group},
      {.flags = "--snapshot-dir",
       .target = &o.snapshot_dir,
       .metavar = "DIR",
       .help = "Where a server keeps what it needs to come back after a failure [none]",
       .group = group,
       .complete = Complete::directory},
      {.flags = "--snapshot-every",
       .target = &o.snapshot_every,
       .metavar = "UPDATES",
       .help = "Updates between two snapshots, alike on all tasks [1000]",
       .group = group,
       .minimum = 1},
  };
}

std::vector<Option> other_options(TrainerOptions& o) {
  const std::string group = "Other";
  return {
      {.flags = "--benchmark",
       .target = &o.benchmark,
       .metavar = "SECONDS",
       .help = "Train on synthetic images for five windows of so many seconds and print samples/s",
       .group = group,
       .minimum = 0,
       .maximum = k_max_seconds},
      {.flags = "--plan",
       .target = &o.plan,
       .metavar = "WORKERS",
       .help = "Do not train: measure this machine's computing and its link (or, as several ranks, "
               "the one between them) and predict step time and samples/s of every strategy and "
               "the best number of parameter servers",
       .group = group,
       .minimum = 1,
       .maximum = 512},
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
       .help = "Of the plan's links, in 10^9 bytes a second [measured]",
       .group = group},
      {.flags = "--plan-latency",
       .target = &o.plan_latency,
       .metavar = "MICROSECONDS",
       .help = "Of the plan's links [measured]",
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

} // namespace

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
      "dtrain-trainer inspect DIR shows the checkpoints that a run has saved.";
  table.examples = {"# Train alone, on Fashion-MNIST",
                    "dtrain-trainer",
                    "# Three ranks on this machine",
                    "dtrain submit --workers=3 --wait",
                    "# Save every 500 steps, and continue after an interruption",
                    "dtrain-trainer --checkpoint-dir=run1 --checkpoint-every=500 --resume"};
  for (auto part : {training_options, output_options, machine_options, parameter_server_options,
                    other_options}) {
    for (Option& option : part(options)) {
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
  parse_hidden(options.hidden);
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
    throw UsageError("--communication=nccl: this build of dtrain-trainer has no CUDA kernels; use "
                     "auto, ring or mpi");
  }
  if (options.communication == "mpi" && options.transport != "auto") {
    throw UsageError(
        fmt::format("--transport={}: is the ring's; MPI chooses its own", options.transport));
  }
  return options;
}

CommOptions comm_options(const TrainerOptions& options) {
  CommOptions comm;
  comm.communication = options.communication == "mpi"    ? CommOptions::Communication::mpi
                       : options.communication == "ring" ? CommOptions::Communication::ring
                                                         : CommOptions::Communication::automatic;
  comm.transport = options.transport == "shm"   ? CommOptions::Transport::shared_memory
                   : options.transport == "tcp" ? CommOptions::Transport::tcp
                                                : CommOptions::Transport::automatic;
  comm.tcp_streams = static_cast<int>(options.tcp_streams);
  comm.rendezvous_timeout = options.rendezvous_timeout;
  comm.peer_timeout = options.peer_timeout;
  comm.collective_timeout = options.collective_timeout;
  comm.collective_log = options.collective_log;
  comm.notice = [](const std::string& text) { fmt::print(stderr, "dtrain-trainer: {}\n", text); };
  return comm;
}

Buckets bucket_options(const TrainerOptions& options) {
  return {options.bytes_per_pack == 0 ? SIZE_MAX : static_cast<std::size_t>(options.bytes_per_pack),
          parse_wire_type(options.communication_data_type).value()};
}

void refuse_server_options(const TrainerOptions& options) {
  const TrainerOptions none;
  const char* flag = options.update != none.update                   ? "--update"
                     : options.backup_workers != none.backup_workers ? "--backup-workers"
                     : options.max_staleness != none.max_staleness   ? "--max-staleness"
                     : options.partitioner != none.partitioner       ? "--partitioner"
                     : !options.snapshot_dir.empty()                 ? "--snapshot-dir"
                     : options.snapshot_every != none.snapshot_every ? "--snapshot-every"
                                                                     : nullptr;
  if (flag != nullptr) {
    throw UsageError(fmt::format("{}: is for jobs with parameter servers, and TF_CONFIG names no "
                                 "cluster.ps; leave it out",
                                 flag));
  }
}

StepOptions step_options(const TrainerOptions& options) {
  return {bucket_options(options), static_cast<std::size_t>(options.batch_size), options.clip_norm};
}

ModelOptions model_options(const TrainerOptions& options, const Dataset& data) {
  return {options.model, data.train.height, data.train.width, data.classes,
          parse_hidden(options.hidden)};
}

OptimizerOptions optimizer_options(const TrainerOptions& options) {
  OptimizerOptions optimizer;
  optimizer.rule = parse_rule(options.optimizer);
  optimizer.learning_rate = options.learning_rate;
  optimizer.momentum = options.momentum;
  optimizer.weight_decay = options.weight_decay;
  return optimizer;
}

std::string trainer_version() { return DTRAIN_VERSION; }

} // namespace trainer
