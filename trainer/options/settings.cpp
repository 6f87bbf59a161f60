#include "trainer/options/settings.h"

#include <charconv>

#include <fmt/format.h>
#include <unistd.h>

#include "submit/errors.h"
#include "trainer/errors.h"
#include "trainer/options/parts.h"
#include "trainer/strategy/choice.h"

namespace trainer {
namespace {

bool is_split_by_speed(const TrainerOptions& options) { return options.batch_split == "speed"; }

bool wants_own_samples(const TrainerOptions& options) {
  return options.auto_shard == "file" || options.auto_shard == "off";
}

AutoShard parse_shard(const std::string& text) {
  return text == "file"   ? AutoShard::file
         : text == "data" ? AutoShard::data
         : text == "off"  ? AutoShard::off
                          : AutoShard::automatic;
}

std::optional<ElasticLimits> elastic_limits(const TrainerOptions& options, const Cluster& cluster) {
  ElasticLimits limits;
  limits.min_workers =
      options.min_workers > 0 ? static_cast<int>(options.min_workers) : cluster.min_workers;
  limits.max_workers =
      options.max_workers > 0 ? static_cast<int>(options.max_workers) : cluster.max_workers;
  if (limits.max_workers > 0 && limits.max_workers < limits.min_workers) {
    throw UsageError(fmt::format("--max-workers={}: is less than --min-workers={}",
                                 limits.max_workers, limits.min_workers));
  }
  if (options.max_workers > 0 && limits.min_workers == 0) {
    throw UsageError("--max-workers: goes with --min-workers, and does nothing without");
  }
  return limits.min_workers > 0 && cluster.source != "none" ? std::optional(limits) : std::nullopt;
}

void refuse_what_elastic_workers_lack(const TrainerOptions& options, int replicas) {
  if (is_split_by_speed(options)) {
    throw UsageError("--batch-split=speed: elastic workers have equal shares, which those that "
                     "come and go take over; leave one of --min-workers and it out");
  }
  if (replicas > 1) {
    throw UsageError(
        fmt::format("--devices={}: an elastic worker has one device", options.devices));
  }
  if (options.communication == "mpi") {
    throw UsageError("--communication=mpi: MPI ends all ranks where one fails; elastic workers "
                     "use the ring");
  }
  if (wants_own_samples(options) || options.drop_remainder) {
    throw UsageError("--auto-shard=file or off, or --drop-remainder: elastic workers share one "
                     "stream of samples, to its end; use --auto-shard=data");
  }
}

/// By all tasks of the job, as none would come to the others.
void refuse_what_servers_lack(const PsTask& task, const TrainerOptions& options) {
  const auto refuse = [](bool given, const char* flag, const char* instead) {
    if (given) {
      throw UsageError(fmt::format("{}: not in a job with parameter servers{}", flag, instead));
    }
  };
  refuse(!options.checkpoint_dir.empty(), "--checkpoint-dir",
         "; --snapshot-dir is where its servers keep what they need to go on");
  refuse(!options.timeline.empty(), "--timeline", "");
  refuse(!options.devices.empty(), "--devices", "; start more workers");
  refuse(wants_own_samples(options), "--auto-shard=file or off",
         "; each worker reads all and takes its part");
  refuse(options.optimizer != "adam" || options.weight_decay > 0, "--optimizer or --weight-decay",
         "; its servers use Adam");
  refuse(options.clip_norm > 0, "--clip-norm", "; no one has all gradients");
  refuse(options.accumulation_steps > 1, "--accumulation-steps", "; use a larger --batch-size");
  refuse(options.drop_remainder, "--drop-remainder", "; --steps says when to stop");
  refuse(options.communication == "mpi", "--communication=mpi", "");
  refuse(is_split_by_speed(options), "--batch-split=speed",
         "; with a chief in TF_CONFIG, fast workers take more batches");
  refuse(options.min_workers > 0 || options.max_workers > 0, "--min-workers or --max-workers",
         ", where workers may come and go as it is");
  const bool sync = options.update == "sync";
  if (sync ? options.max_staleness >= 0 : options.backup_workers > 0) {
    throw UsageError(fmt::format("{} goes with --update={} only",
                                 sync ? "--max-staleness" : "--backup-workers",
                                 sync ? "async" : "sync"));
  }
  if (options.backup_workers >= static_cast<std::int64_t>(task.workers.size())) {
    throw UsageError(fmt::format("--backup-workers={}: must be fewer than the {} workers",
                                 options.backup_workers, task.workers.size()));
  }
}

} // namespace

std::vector<std::size_t> parse_hidden(const std::string& text) {
  constexpr std::size_t k_widest = 1 << 16;
  std::vector<std::size_t> widths;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    std::size_t width = 0;
    const char* last = text.data() + end;
    const auto [stop, error] = std::from_chars(text.data() + at, last, width);
    if (error != std::errc() || stop != last || width < 1 || width > k_widest) {
      throw UsageError(fmt::format("--hidden={}: must be widths of 1 to {}, as in 512,256",
                                   dtrain::printable(text), k_widest));
    }
    widths.push_back(width);
    at = end + 1;
  }
  return widths;
}

RunOptions run_options(const TrainerOptions& options) {
  RunOptions run;
  run.model.name = options.model;
  run.model.hidden = parse_hidden(options.hidden);
  run.optimizer.rule = parse_rule(options.optimizer);
  run.optimizer.learning_rate = options.learning_rate;
  run.optimizer.momentum = options.momentum;
  run.optimizer.weight_decay = options.weight_decay;
  run.schedule = parse_schedule(options.lr_schedule);
  const auto pack = static_cast<std::size_t>(std::max<std::int64_t>(options.bytes_per_pack, 0));
  run.step = {{options.bytes_per_pack == 0 ? SIZE_MAX : pack,
               parse_wire_type(options.communication_data_type).value()},
              static_cast<std::size_t>(options.batch_size),
              options.clip_norm};
  run.accumulation_steps = options.accumulation_steps;
  run.epochs = options.epochs;
  run.steps = options.steps;
  run.drop_remainder = options.drop_remainder;
  run.seed = options.seed;
  run.split_by_speed = is_split_by_speed(options);
  run.log_every = options.log_every;
  run.checkpoint_dir = options.checkpoint_dir;
  run.checkpoint_every = options.checkpoint_every;
  run.resume = options.resume;
  run.timeline = options.timeline;
  return run;
}

DataOptions data_options(const TrainerOptions& options) {
  const bool by_speed = is_split_by_speed(options); // Which shares one stream among all.
  if (by_speed && wants_own_samples(options)) {
    throw UsageError(fmt::format("--auto-shard={}: each worker takes what it has read, and "
                                 "--batch-split=speed shares all of it; leave one of them out",
                                 options.auto_shard));
  }
  return {.data = options.data,
          .shard = by_speed ? AutoShard::data : parse_shard(options.auto_shard),
          .one_pass = options.epochs == 1 && !options.resume && !by_speed,
          .progress_bar = !options.no_progress && isatty(STDERR_FILENO) == 1};
}

OutputOptions output_options(const TrainerOptions& options) {
  return {.progress_bar = !options.no_progress,
          .logdir = options.logdir,
          .csv = options.csv,
          .epochs = static_cast<double>(options.epochs)};
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

ForecastOptions forecast_options(const TrainerOptions& options) {
  return {.workers = static_cast<int>(options.plan),
          .workers_per_host = static_cast<int>(options.plan_ranks_per_host),
          .bandwidth = options.plan_bandwidth * 1e9,
          .latency = options.plan_latency * 1e-6};
}

RankOptions rank_options(const TrainerOptions& options, const Cluster& cluster) {
  RankOptions ranks{.cluster = cluster,
                    .devices = parse_devices(options.devices),
                    .ops = parse_cross_device_ops(options.cross_device_ops),
                    .comm = comm_options(options)};
  if (ranks.devices.empty()) {
    ranks.devices = {options.device};
  }
  if (cluster.world_size == 1 && ranks.replicas() > 1) {
    ranks.cluster.source = "--devices";
  } else if (ranks.replicas() > 1 && options.cross_device_ops != "auto") {
    throw UsageError(fmt::format("--cross-device-ops={}: in a job of {} workers each adds up its "
                                 "replicas' gradients for itself; leave it out",
                                 options.cross_device_ops, cluster.world_size));
  }
  return ranks;
}

TrainJob train_job(const TrainerOptions& options, const Cluster& cluster) {
  TrainJob job{.ranks = rank_options(options, cluster),
               .elastic = elastic_limits(options, cluster),
               .data = data_options(options),
               .run = run_options(options),
               .outputs = output_options(options)};
  choose_strategy(options.strategy, {.source = cluster.source,
                                     .workers = cluster.world_size,
                                     .is_elastic = job.elastic.has_value()});
  if (job.elastic) {
    refuse_what_elastic_workers_lack(options, job.ranks.replicas());
    job.data.shard = AutoShard::data;
    job.data.one_pass = false; // What was taken may have to be taken again.
  }
  return job;
}

PsJob ps_job(const TrainerOptions& options, const PsTask& task) {
  choose_strategy(options.strategy, {.source = "TF_CONFIG",
                                     .workers = static_cast<int>(task.workers.size()),
                                     .servers = static_cast<int>(task.servers.size())});
  refuse_what_servers_lack(task, options);
  PsJob job{.task = task,
            .run = run_options(options),
            .data = data_options(options),
            .outputs = output_options(options),
            .policy = {},
            .device = options.device,
            .partitioner = options.partitioner,
            .shared_memory = options.transport != "tcp",
            .snapshot_dir = options.snapshot_dir,
            .peer_timeout = options.peer_timeout,
            .rendezvous_timeout = options.rendezvous_timeout,
            .is_benchmark = options.benchmark > 0};
  job.data.shard = AutoShard::data;
  job.data.one_pass = false;
  job.policy.sync = options.update == "sync";
  job.policy.backup_workers = static_cast<int>(options.backup_workers);
  job.policy.max_staleness = options.max_staleness;
  job.policy.snapshot_every = options.snapshot_every;
  job.policy.gradients = job.run.step.buckets.wire;
  return job;
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

} // namespace trainer
