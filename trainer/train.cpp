#include "trainer/train.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <memory>

#include "trainer/checkpoint/checkpoint.h"
#include "trainer/clock.h"
#include "trainer/data/loader.h"
#include "trainer/data/locate.h"
#include "trainer/device/device.h"
#include "trainer/errors.h"
#include "trainer/evaluate.h"
#include "trainer/monitor/console.h"
#include "trainer/monitor/csv.h"
#include "trainer/monitor/tensorboard.h"
#include "trainer/monitor/timeline.h"
#include "trainer/optim/learning_rate.h"
#include "trainer/strategy/batch_split.h"
#include "trainer/strategy/mirrored.h"
#include "trainer/strategy/multi_worker.h"

namespace trainer {
namespace {

/// What must be the same on every rank, as its flags say.
struct Plan {
  std::int64_t batch_size;
  std::int64_t steps; ///< In all, those before a resume counted.
  std::int64_t log_every;
  std::int64_t checkpoint_every;
  std::uint64_t seed;
  std::uint64_t samples;
  LearningRate learning_rate;  ///< Over samples.
  std::int64_t split_by_speed; ///< 0 or 1; a bool would leave bytes of the struct unset.
  std::int64_t timeline;

  bool operator==(const Plan&) const = default;
};

Plan make_plan(const TrainerOptions& options, int ranks, std::uint64_t samples) {
  const auto global_batch =
      static_cast<std::uint64_t>(options.batch_size) * static_cast<std::uint64_t>(ranks);
  const std::uint64_t total = samples * static_cast<std::uint64_t>(options.epochs);
  const auto steps = static_cast<std::int64_t>((total + global_batch - 1) / global_batch);
  Plan plan{};
  plan.batch_size = options.batch_size;
  plan.steps = options.steps > 0 ? options.steps : steps;
  plan.log_every = options.log_every;
  plan.checkpoint_every = options.checkpoint_every;
  plan.seed = static_cast<std::uint64_t>(options.seed);
  plan.samples = samples;
  // A run that --steps stops early is on the same schedule, so that it may be continued.
  const std::uint64_t whole =
      std::max(total, global_batch * static_cast<std::uint64_t>(options.steps));
  plan.learning_rate = {options.learning_rate, parse_schedule(options.lr_schedule),
                        static_cast<double>(whole)};
  plan.split_by_speed = options.batch_split == "speed" ? 1 : 0;
  plan.timeline = options.timeline.empty() ? 0 : 1;
  return plan;
}

void check_same_plan(const Plan& plan, Communicator& communicator) {
  Plan first = plan;
  communicator.broadcast(std::as_writable_bytes(std::span(&first, 1)), 0, "plan");
  if (!(first == plan)) {
    throw UsageError(fmt::format("rank {} has other flags or data than rank 0; start all ranks "
                                 "with the same",
                                 communicator.rank()));
  }
}

/// Weights by the seed, or the newest checkpoint; rank 0's, bit for bit, on every rank.
Progress start_or_resume(const TrainerOptions& options, const Plan& plan, Replica& replica,
                         Communicator& communicator, Console& console) {
  Progress progress{0, 0, plan.seed, plan.samples};
  replica.model.initialize(plan.seed);
  if (communicator.rank() == 0 && !options.checkpoint_dir.empty()) {
    const auto newest = newest_checkpoint(options.checkpoint_dir);
    if (newest && !options.resume) {
      throw UsageError(fmt::format("--checkpoint-dir={}: holds a checkpoint already; continue it "
                                   "with --resume, or give another folder",
                                   options.checkpoint_dir));
    }
    if (newest) {
      progress = load_checkpoint(*newest, replica, progress);
      console.say(fmt::format("resumed from {} at step {}", *newest, progress.step));
    } else if (options.resume) {
      console.say(fmt::format("no checkpoint in {} yet: starting anew", options.checkpoint_dir));
    }
  }
  const auto share = [&](auto values, const char* name) {
    communicator.broadcast(std::as_writable_bytes(values), 0, name);
  };
  share(std::span(&progress, 1), "progress");
  share(replica.parameters.span(), "parameters");
  share(replica.optimizer.first_moments(), "first moments");
  share(replica.optimizer.second_moments(), "second moments");
  replica.optimizer.set_step(progress.step);
  return progress;
}

void print_choices(const Cluster& cluster, const Plan& plan, const Communicator& communicator,
                   const Device& device, const Dataset& data, Console& console) {
  console.choices(
      {{"ranks", fmt::format("{} (from {})", cluster.world_size,
                             cluster.source == "none" ? "no cluster variables" : cluster.source)},
       {"network", communicator.describe()},
       {"device", device.description},
       {"data", fmt::format("{}: {} images of {} pixels to train on, {} held out", data.folder,
                            with_commas(static_cast<double>(data.train.count)), data.train.features,
                            with_commas(static_cast<double>(data.test.count)))},
       {"training", fmt::format("{} steps of {} × {} samples, Adam {}, seed {}",
                                with_commas(static_cast<double>(plan.steps)), cluster.world_size,
                                plan.batch_size, plan.learning_rate.text(), plan.seed)}});
}

/// Where log lines go: rank 0's, the others have nothing but the console, which is quiet.
struct Outputs {
  Outputs(const TrainerOptions& options, bool first_rank)
      : console(!first_rank, !options.no_progress) {
    if (first_rank && !options.logdir.empty()) {
      board = std::make_unique<TensorBoard>(options.logdir);
    }
    if (first_rank && !options.csv.empty()) {
      csv = std::make_unique<CsvLog>(options.csv);
    }
  }

  void line(const LogLine& line, double epochs) {
    console.line(line, epochs);
    if (csv) {
      csv->line(line);
    }
    if (board) {
      board->scalars(line.step, {{"train/loss", line.loss},
                                 {"train/accuracy", line.accuracy},
                                 {"train/epoch", line.epoch},
                                 {"train/samples_per_second", line.samples_per_second},
                                 {"train/input_bound", line.input_bound},
                                 {"train/waiting", line.waiting},
                                 {"train/overlap", line.overlap}});
    }
  }

  Console console;
  std::unique_ptr<TensorBoard> board;
  std::unique_ptr<CsvLog> csv;
};

void name_straggler(int rank, const LogLine& line, bool split_by_speed,
                    const Communicator& communicator, Console& console) {
  constexpr double k_milliseconds = 1e3;
  console.say(fmt::format("{} holds the others back: {:.2f} ms a step up to the all-reduce, median "
                          "{:.2f}, fastest {:.2f}{}",
                          communicator.name(rank), k_milliseconds * line.slowest_seconds,
                          k_milliseconds * line.median_seconds,
                          k_milliseconds * line.fastest_seconds,
                          split_by_speed ? "" : "; --batch-split=speed would give it less to do"));
}

void report_held_out(const Score& score, std::int64_t step, Outputs& outputs) {
  const auto count = static_cast<double>(score.count);
  const double accuracy = static_cast<double>(score.correct) / count;
  outputs.console.say(fmt::format("held-out accuracy {:.2f} %  loss {:.4f}  ({} images)",
                                  100 * accuracy, score.loss / count, with_commas(count)));
  if (outputs.board) {
    outputs.board->scalars(step, {{"test/loss", score.loss / count}, {"test/accuracy", accuracy}});
  }
}

Dataset find_dataset(const TrainerOptions& options) {
  DataPlaces places = data_places_from_env();
  places.progress_bar = !options.no_progress && isatty(STDERR_FILENO) == 1;
  return load_dataset(locate_dataset(options.data, places));
}

void train_rank(const TrainerOptions& options, const Cluster& cluster, const Device& device,
                const Dataset& data, Communicator& communicator) {
  const CpuKernels& kernels = *device.kernels;
  const bool first_rank = cluster.rank == 0;
  Outputs outputs(options, first_rank);
  Console& console = outputs.console;
  const Plan plan = make_plan(options, cluster.world_size, data.train.count);
  check_same_plan(plan, communicator);
  print_choices(cluster, plan, communicator, device, data, console);

  const auto batch_size = static_cast<std::size_t>(options.batch_size);
  Replica replica({.inputs = data.train.features, .classes = data.classes}, options.learning_rate,
                  kernels, communicator);
  Progress progress = start_or_resume(options, plan, replica, communicator, console);
  MultiWorker strategy(communicator, replica.optimizer, replica.gradients,
                       static_cast<std::size_t>(options.bucket_kib) << 10);
  Loader loader(data.train, kernels,
                {batch_size, cluster.rank, cluster.world_size, plan.seed, progress.position,
                 std::max<std::int64_t>(plan.steps - progress.step, 0)});
  BatchSplit split(plan.split_by_speed != 0, batch_size, communicator);
  Metrics metrics(communicator);
  StragglerWatch stragglers;
  Timeline timeline;
  double input_before = 0;
  const auto save = [&] {
    if (first_rank && !options.checkpoint_dir.empty()) {
      save_checkpoint(options.checkpoint_dir, replica, progress);
    }
  };

  std::int64_t saved_at = progress.step;
  for (const Batch& batch : loader) {
    replica.optimizer.set_learning_rate(
        plan.learning_rate.at(static_cast<double>(progress.position)));
    if (plan.timeline != 0) {
      timeline.add(Timeline::What::input, now() - (loader.seconds() - input_before), now());
      input_before = loader.seconds();
    }
    metrics.add(strategy.step(replica.model, batch, plan.timeline != 0 ? &timeline : nullptr));
    progress.step = replica.optimizer.step();
    progress.position = loader.position();
    console.progress(progress.step, plan.steps);
    if (split.after_step(loader.seconds() + strategy.seconds_computing())) {
      loader.set_share(split.first(), split.rows());
      console.say(fmt::format("shares of the {} samples of a step, by speed: {}", batch.global_rows,
                              fmt::join(split.all_rows(), ", ")));
    }
    if (progress.step % plan.log_every == 0 || progress.step == plan.steps) {
      const LogLine line = metrics.line(progress.step, loader.epochs(),
                                        {.input = loader.seconds(),
                                         .computing = strategy.seconds_computing(),
                                         .under_way = strategy.seconds_under_way(),
                                         .exposed = strategy.seconds_exposed()});
      outputs.line(line, static_cast<double>(options.epochs));
      if (const auto rank = stragglers.look(line)) {
        name_straggler(*rank, line, plan.split_by_speed != 0, communicator, console);
      }
    }
    if (plan.checkpoint_every > 0 && progress.step % plan.checkpoint_every == 0) {
      save();
      saved_at = progress.step;
    }
  }
  if (saved_at != progress.step) {
    save();
  }
  report_held_out(evaluate(replica.model, data.test, kernels, batch_size, communicator),
                  progress.step, outputs);
  if (plan.timeline != 0) {
    timeline.write(options.timeline, communicator);
  }
}

} // namespace

void train(const TrainerOptions& options) {
  Cluster cluster = cluster_from_env();
  const Device device = select_device(options.device);
  const auto replicas = static_cast<int>(parse_devices(options.devices).size());
  const CrossDeviceOps ops = parse_cross_device_ops(options.cross_device_ops);
  if (replicas == 1) {
    const auto communicator = connect(cluster, comm_options(options));
    train_rank(options, cluster, device, find_dataset(options), *communicator);
    return;
  }
  if (cluster.world_size > 1) {
    throw UsageError(fmt::format("--devices={}: one device a worker in a job of {} workers",
                                 options.devices, cluster.world_size));
  }
  const Dataset data = find_dataset(options);
  cluster.world_size = cluster.local_world_size = replicas;
  cluster.source = "--devices";
  run_replicas(replicas, ops, [&](Communicator& communicator) {
    Cluster replica = cluster;
    replica.rank = replica.local_rank = communicator.rank();
    train_rank(options, replica, device, data, communicator);
  });
}

} // namespace trainer
