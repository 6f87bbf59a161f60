#include "trainer/train.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "trainer/checkpoint/checkpoint.h"
#include "trainer/comm/agreement.h"
#include "trainer/data/loader.h"
#include "trainer/data/locate.h"
#include "trainer/device/device.h"
#include "trainer/errors.h"
#include "trainer/evaluate.h"
#include "trainer/monitor/outputs.h"
#include "trainer/monitor/timeline.h"
#include "trainer/run_plan.h"
#include "trainer/strategy/batch_split.h"
#include "trainer/strategy/mirrored.h"
#include "trainer/strategy/multi_worker.h"

namespace trainer {
namespace {

/// Weights by the seed, or the newest checkpoint; rank 0's, bit for bit, on every rank.
Progress start_or_resume(const TrainerOptions& options, const RunPlan& plan, Replica& replica,
                         Communicator& communicator, Outputs& outputs) {
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
      outputs.say(fmt::format("resumed from {} at step {}", *newest, progress.step));
    } else if (options.resume) {
      outputs.say(fmt::format("no checkpoint in {} yet: starting anew", options.checkpoint_dir));
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

void print_choices(const Cluster& cluster, const RunPlan& plan, const Communicator& communicator,
                   const Device& device, const Dataset& data, Outputs& outputs) {
  outputs.choices(
      {{"ranks", fmt::format("{} (from {})", cluster.world_size,
                             cluster.source == "none" ? "no cluster variables" : cluster.source)},
       {"network",
        communicator.describe() +
            (plan.wire == 0 ? ""
                            : fmt::format("; gradients as {}",
                                          wire_type_name(static_cast<WireType>(plan.wire))))},
       {"device", device.description},
       {"data", fmt::format("{}: {} images of {} pixels to train on, {} held out", data.folder,
                            with_commas(static_cast<double>(data.train.count)), data.train.features,
                            with_commas(static_cast<double>(data.test.count)))},
       {"training", fmt::format("{} steps of {} × {} samples, Adam {}, seed {}",
                                with_commas(static_cast<double>(plan.steps)), cluster.world_size,
                                plan.batch_size, plan.learning_rate.text(), plan.seed)}});
}

Dataset find_dataset(const TrainerOptions& options) {
  DataPlaces places = data_places_from_env();
  places.progress_bar = !options.no_progress && isatty(STDERR_FILENO) == 1;
  return load_dataset(locate_dataset(options.data, places));
}

OutputOptions output_options(const TrainerOptions& options) {
  return {.progress_bar = !options.no_progress,
          .logdir = options.logdir,
          .csv = options.csv,
          .epochs = static_cast<double>(options.epochs)};
}

RankSeconds seconds_of(const MultiWorker& strategy) {
  return {.input = strategy.seconds_input(),
          .computing = strategy.seconds_computing(),
          .under_way = strategy.seconds_under_way(),
          .exposed = strategy.seconds_exposed()};
}

void train_rank(const TrainerOptions& options, const Cluster& cluster, const Device& device,
                const Dataset& data, Communicator& communicator) {
  const CpuKernels& kernels = *device.kernels;
  const bool first_rank = cluster.rank == 0;
  Outputs outputs(output_options(options), first_rank);
  RunPlan plan = make_run_plan(options, cluster.world_size, data.train.count);
  plan.data = digest(data);
  check_same_plan(plan, communicator);
  print_choices(cluster, plan, communicator, device, data, outputs);

  const auto batch_size = static_cast<std::size_t>(options.batch_size);
  Replica replica({.inputs = data.train.features,
                   .hidden = static_cast<std::size_t>(options.hidden),
                   .classes = data.classes},
                  options.learning_rate, kernels, communicator);
  Progress progress = start_or_resume(options, plan, replica, communicator, outputs);
  Timeline timeline;
  BatchSplit split(plan.split_by_speed != 0, batch_size, communicator);
  MultiWorker strategy(communicator, replica.optimizer, replica.gradients, bucket_options(options),
                       &split, plan.timeline != 0 ? &timeline : nullptr);
  Loader loader(data.train, kernels,
                {batch_size, cluster.rank, cluster.world_size, plan.seed, progress.position,
                 std::max<std::int64_t>(plan.steps - progress.step, 0)});
  Metrics metrics(communicator);
  StragglerWatch stragglers;
  std::int64_t saved_at = progress.step;
  const auto save = [&] {
    if (first_rank && !options.checkpoint_dir.empty()) {
      save_checkpoint(options.checkpoint_dir, replica, progress);
    }
    saved_at = progress.step;
  };

  for (const Batch& batch : loader) {
    replica.optimizer.set_learning_rate(
        plan.learning_rate.at(static_cast<double>(progress.position)));
    metrics.add(strategy.step(replica.model, batch));
    progress.step = replica.optimizer.step();
    progress.position = loader.position();
    outputs.progress(progress.step, plan.steps);
    if (strategy.has_new_shares()) {
      loader.set_share(split.first(), split.rows());
      outputs.new_shares(split.all_rows(), batch.global_rows);
    }
    if (progress.step % plan.log_every == 0 || progress.step == plan.steps) {
      const LogLine line = metrics.line(progress.step, loader.epochs(), seconds_of(strategy));
      outputs.line(line);
      if (const auto rank = stragglers.look(line)) {
        outputs.straggler(communicator.name(*rank), line, plan.split_by_speed != 0);
      }
    }
    if (plan.checkpoint_every > 0 && progress.step % plan.checkpoint_every == 0) {
      save();
    }
  }
  if (saved_at != progress.step) {
    save();
  }
  outputs.held_out(evaluate(replica.model, data.test, kernels, batch_size, communicator),
                   progress.step);
  if (plan.timeline != 0) {
    timeline.write(options.timeline, communicator);
  }
}

/// One worker of several, with a replica a device.
void train_worker(const TrainerOptions& options, const Cluster& cluster, const Device& device,
                  int replicas) {
  if (replicas > 1 && options.cross_device_ops != "auto") {
    throw UsageError(fmt::format("--cross-device-ops={}: in a job of {} workers each adds up its "
                                 "replicas' gradients for itself; leave it out",
                                 options.cross_device_ops, cluster.world_size));
  }
  const auto between = connect(cluster, comm_options(options));
  check_equal_replicas(replicas, *between);
  if (replicas == 1) {
    train_rank(options, cluster, device, find_dataset(options), *between);
    return;
  }
  run_replicas(replicas, *between, [&, data = find_dataset(options)](Communicator& communicator) {
    Cluster replica = cluster;
    replica.world_size *= replicas;
    replica.local_world_size *= replicas;
    replica.rank = communicator.rank();
    replica.local_rank = cluster.local_rank * replicas + communicator.rank() % replicas;
    train_rank(options, replica, device, data, communicator);
  });
}

} // namespace

void train(const TrainerOptions& options) {
  Cluster cluster = cluster_from_env();
  const Device device = select_device(options.device);
  const auto replicas = static_cast<int>(parse_devices(options.devices).size());
  const CrossDeviceOps ops = parse_cross_device_ops(options.cross_device_ops);
  if (cluster.world_size > 1) {
    train_worker(options, cluster, device, replicas);
    return;
  }
  if (replicas == 1) {
    const auto communicator = connect(cluster, comm_options(options));
    train_rank(options, cluster, device, find_dataset(options), *communicator);
    return;
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
