#include "trainer/train.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <memory>

#include "trainer/collectives/agreement.h"
#include "trainer/data/loader.h"
#include "trainer/data/locate.h"
#include "trainer/device/device.h"
#include "trainer/elastic/membership.h"
#include "trainer/errors.h"
#include "trainer/files.h"
#include "trainer/monitor/outputs.h"
#include "trainer/strategy/choice.h"
#include "trainer/strategy/mirrored.h"
#include "trainer/training_run.h"

namespace trainer {
namespace {

std::string shard_text(const Dataset& data) {
  if (data.train.stream) {
    return "; a stream, taken in the order it comes";
  }
  switch (data.shard) {
  case AutoShard::file:
    return fmt::format("; this worker's of {} files, each worker has its own", data.files);
  case AutoShard::off:
    return "; every worker takes all";
  default:
    return "";
  }
}

void print_choices(const Cluster& cluster, const RunSettings& settings,
                   const Communicator& communicator, Device& device, const Dataset& data,
                   Outputs& outputs) {
  const std::string steps = with_commas(static_cast<double>(settings.steps));
  outputs.choices(
      {{"ranks", fmt::format("{} (from {})", communicator.world_size(),
                             cluster.source == "none" ? "no cluster variables" : cluster.source)},
       {"network", communicator.describe() +
                       (settings.wire == 0
                            ? ""
                            : fmt::format("; gradients as {}",
                                          wire_type_name(static_cast<WireType>(settings.wire))))},
       {"device", device.describe()},
       {"data", fmt::format("{}: {} images of {} pixels to train on, {} held out{}", data.folder,
                            with_commas(static_cast<double>(data.train.count)), data.train.features,
                            with_commas(static_cast<double>(data.test.count)), shard_text(data))},
       {"training", fmt::format("{} steps of {} × {} samples, {} {}, seed {}", steps,
                                cluster.world_size, settings.batch_size,
                                rule_title(static_cast<OptimizerOptions::Rule>(settings.rule)),
                                settings.learning_rate.text(), settings.seed)}});
}

Dataset find_dataset(const TrainerOptions& options, const Cluster& cluster,
                     bool is_elastic = false) {
  DataPlaces places = data_places_from_env();
  places.progress_bar = !options.no_progress && isatty(STDERR_FILENO) == 1;
  const bool by_speed = options.batch_split == "speed"; // Which shares one stream among all.
  if (by_speed && (options.auto_shard == "file" || options.auto_shard == "off")) {
    throw UsageError(fmt::format("--auto-shard={}: each worker takes what it has read, and "
                                 "--batch-split=speed shares all of it; leave one of them out",
                                 options.auto_shard));
  }
  const AutoShard shard = options.auto_shard == "file"               ? AutoShard::file
                          : options.auto_shard == "data" || by_speed ? AutoShard::data
                          : options.auto_shard == "off"              ? AutoShard::off
                                                                     : AutoShard::automatic;
  const bool one_pass = options.epochs == 1 && !options.resume && !by_speed && !is_elastic;
  return load_dataset(locate_dataset(options.data, places),
                      {shard, cluster.rank, cluster.world_size, one_pass});
}

OutputOptions output_options(const TrainerOptions& options) {
  return {.progress_bar = !options.no_progress,
          .logdir = options.logdir,
          .csv = options.csv,
          .epochs = static_cast<double>(options.epochs)};
}

void train_rank(const TrainerOptions& options, const Cluster& cluster, Device& device,
                const Dataset& data, Communicator& communicator) {
  Outputs outputs(output_options(options), cluster.rank == 0);
  const AllSamples samples = all_samples(data, communicator);
  TrainingRun run(options, device, data, samples, cluster.world_size, false);
  run.agree(communicator, 0, true);
  print_choices(cluster, run.settings(), communicator, device, data, outputs);
  run.begin(communicator, outputs, 0, true);
  run.train(communicator, outputs, [] { return false; });
  run.finish(communicator, outputs);
}

/// "lost rank 2 (host-b, pid 7); 2 ranks go on from step 120, sample 15,360 (…)"
std::string what_changed(const Epoch& epoch, const TrainingRun& run, const std::string& why) {
  const int ranks = epoch.communicator->world_size();
  std::string text;
  if (!epoch.lost.empty()) {
    text += fmt::format("lost {}; ", fmt::join(epoch.lost, ", "));
  }
  if (!epoch.joined.empty()) {
    text += fmt::format("joined by {}; ", fmt::join(epoch.joined, ", "));
  }
  text +=
      fmt::format("{} rank{} on from step {}, sample {}", ranks, ranks == 1 ? " goes" : "s go",
                  run.progress().step, with_commas(static_cast<double>(run.progress().position)));
  return epoch.lost.empty() || why.empty() ? text : fmt::format("{} ({})", text, why);
}

constexpr int k_most_failures = 64;

/// From meeting to meeting (elastic/membership.h), until all samples are behind.
void train_elastic(const TrainerOptions& options, const Cluster& cluster,
                   const ElasticLimits& limits, Device& device, const Dataset& data) {
  Membership membership(cluster, comm_options(options), limits);
  TrainingRun run(options, device, data, {data.train.count, false}, cluster.world_size, true);
  std::unique_ptr<Outputs> outputs;
  bool is_first = false;
  std::uint64_t number = 0; ///< Of the roster under which the state was shared.
  std::string why;
  int failures = 0; ///< Since it was.
  const auto train_one_epoch = [&] {
    const Epoch epoch =
        membership.meet({number, run.has_state() ? run.progress().step : -1, run.is_complete()});
    if (!epoch.communicator) {
      fmt::print("{}\n",
                 epoch.is_left_behind
                     ? "the other workers went on without this one, which was stopped or cut "
                       "off, and have ended: nothing is left to do for it"
                     : "the other workers have done the rest");
      return true;
    }
    Communicator& communicator = *epoch.communicator;
    const auto train = [&] {
      if (!outputs || is_first != (communicator.rank() == 0)) {
        is_first = communicator.rank() == 0;
        const std::int64_t last_step = outputs ? outputs->last_step() : -1;
        outputs.reset();
        outputs = std::make_unique<Outputs>(output_options(options), is_first, last_step);
      }
      const bool is_new = epoch.step < 0;
      run.agree(communicator, epoch.source, is_new);
      if (is_new) {
        print_choices(cluster, run.settings(), communicator, device, data, *outputs);
      }
      run.begin(communicator, *outputs, epoch.source, is_new);
      number = epoch.number;
      failures = 0;
      if (!is_new) {
        outputs->say(what_changed(epoch, run, why));
      }
      why.clear();
      if (!run.train(communicator, *outputs,
                     [&] { return is_first && membership.has_newcomers(); })) {
        return false;
      }
      run.finish(communicator, *outputs);
      return true;
    };
    if (!telling_peers(communicator, train)) {
      return false;
    }
    membership.be_over();
    return true;
  };
  for (bool is_done = false; !is_done;) {
    try {
      is_done = train_one_epoch();
    } catch (const PeerError& error) {
      why = error.what();
      if (++failures > k_most_failures) {
        throw; // Ranks that can meet but not connect would go on for ever.
      }
    }
  }
}

ElasticLimits elastic_limits(const TrainerOptions& options, const Cluster& cluster) {
  ElasticLimits limits;
  limits.min_workers =
      options.min_workers > 0 ? static_cast<int>(options.min_workers) : cluster.min_workers;
  limits.max_workers =
      options.max_workers > 0 ? static_cast<int>(options.max_workers) : cluster.max_workers;
  if (limits.max_workers > 0 && limits.max_workers < limits.min_workers) {
    throw UsageError(fmt::format("--max-workers={}: is less than --min-workers={}",
                                 limits.max_workers, limits.min_workers));
  }
  return limits;
}

/// One worker of several, with a replica a device.
void train_worker(const TrainerOptions& options, const Cluster& cluster, Device& device,
                  int replicas) {
  if (replicas > 1 && options.cross_device_ops != "auto") {
    throw UsageError(fmt::format("--cross-device-ops={}: in a job of {} workers each adds up its "
                                 "replicas' gradients for itself; leave it out",
                                 options.cross_device_ops, cluster.world_size));
  }
  const auto between = connect(cluster, comm_options(options));
  check_equal_replicas(replicas, *between);
  telling_peers(*between, [&] {
    const Dataset data = find_dataset(options, cluster);
    if (replicas == 1) {
      train_rank(options, cluster, device, data, *between);
      return;
    }
    run_replicas(replicas, *between, [&](Communicator& communicator) {
      Cluster replica = cluster;
      replica.world_size *= replicas;
      replica.local_world_size *= replicas;
      replica.rank = communicator.rank();
      replica.local_rank = cluster.local_rank * replicas + communicator.rank() % replicas;
      train_rank(options, replica, device, data, communicator);
    });
  });
}

} // namespace

void train(const TrainerOptions& options) {
  if (!options.collective_log.empty()) {
    make_folder(options.collective_log);
  }
  Cluster cluster = cluster_from_env();
  const std::unique_ptr<Device> owned = make_device(options.device);
  Device& device = *owned;
  const auto replicas = static_cast<int>(parse_devices(options.devices).size());
  const CrossDeviceOps ops = parse_cross_device_ops(options.cross_device_ops);
  const ElasticLimits limits = elastic_limits(options, cluster);
  if (options.max_workers > 0 && limits.min_workers == 0) {
    throw UsageError("--max-workers: goes with --min-workers, and does nothing without");
  }
  const bool is_elastic = limits.min_workers > 0 && cluster.source != "none";
  choose_strategy(
      options.strategy,
      {.source = cluster.source, .workers = cluster.world_size, .is_elastic = is_elastic});
  if (is_elastic) {
    if (options.batch_split == "speed") {
      throw UsageError("--batch-split=speed: elastic workers have equal shares, which those that "
                       "come and go take over; leave one of --min-workers and it out");
    }
    if (replicas > 1) {
      throw UsageError(
          fmt::format("--devices={}: an elastic worker has one device", options.devices));
    }
    if (comm_options(options).communication == CommOptions::Communication::mpi) {
      throw UsageError("--communication=mpi: MPI ends all ranks where one fails; elastic workers "
                       "use the ring");
    }
    if (options.auto_shard == "file" || options.auto_shard == "off" || options.drop_remainder) {
      throw UsageError("--auto-shard=file or off, or --drop-remainder: elastic workers share one "
                       "stream of samples, to its end; use --auto-shard=data");
    }
    TrainerOptions shared = options;
    shared.auto_shard = "data";
    train_elastic(options, cluster, limits, device, find_dataset(shared, cluster, true));
    return;
  }
  if (cluster.world_size > 1) {
    train_worker(options, cluster, device, replicas);
    return;
  }
  if (replicas == 1) {
    const auto communicator = connect(cluster, comm_options(options));
    train_rank(options, cluster, device, find_dataset(options, cluster), *communicator);
    return;
  }
  const Dataset data = find_dataset(options, cluster);
  cluster.world_size = cluster.local_world_size = replicas;
  cluster.source = "--devices";
  run_replicas(replicas, ops, [&](Communicator& communicator) {
    Cluster replica = cluster;
    replica.rank = replica.local_rank = communicator.rank();
    train_rank(options, replica, device, data, communicator);
  });
}

} // namespace trainer
