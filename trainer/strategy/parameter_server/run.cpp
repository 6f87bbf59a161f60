#include "trainer/strategy/parameter_server/run.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include <fmt/format.h>
#include <unistd.h>

#include "trainer/clock.h"
#include "trainer/data/locate.h"
#include "trainer/device/device.h"
#include "trainer/errors.h"
#include "trainer/evaluate.h"
#include "trainer/monitor/outputs.h"
#include "trainer/strategy/choice.h"
#include "trainer/strategy/parameter_server/coordinator.h"
#include "trainer/strategy/parameter_server/coordinator_link.h"
#include "trainer/strategy/parameter_server/journal.h"
#include "trainer/strategy/parameter_server/server.h"
#include "trainer/strategy/parameter_server/worker.h"

namespace trainer {
namespace {

constexpr int k_server_windows = 5;
constexpr std::int64_t k_benchmark_steps = 5000;
constexpr std::size_t k_benchmark_samples = 60'000;

void warn_without_token(const PsTask& task) {
  if (task.token.empty()) {
    say(no_token_warning());
  }
}

void serve(const PsTask& task, const TrainerOptions& options) {
  const std::string& address = task.servers[static_cast<std::size_t>(task.index)];
  const TaskAddress where = TaskAddress::parse(address, fmt::format("ps {}", task.index));
  ServerOptions server;
  server.host = where.host;
  server.port = where.port;
  server.index = task.index;
  server.token = task.token;
  if (!options.snapshot_dir.empty()) {
    server.snapshot_dir =
        fmt::format("{}/ps-{}-of-{}", options.snapshot_dir, task.index, task.servers.size());
  }
  server.peer_timeout = options.peer_timeout;
  server.rendezvous_timeout = options.rendezvous_timeout;
  const std::unique_ptr<Device> device = make_device(options.device);
  ParameterServer running(server, *device, say);
  say(fmt::format("ps {}: listens at {} for {} workers; {}", task.index, address,
                  task.workers.size(), device->describe()));
  warn_without_token(task);
  running.run();
}

std::string update_text(const TrainerOptions& options) {
  if (options.update == "sync") {
    return options.backup_workers > 0
               ? fmt::format("synchronous, {} backup workers", options.backup_workers)
               : "synchronous";
  }
  return options.max_staleness < 0
             ? "asynchronous"
             : fmt::format("asynchronous, staleness at most {}", options.max_staleness);
}

OutputOptions server_output_options(const TrainerOptions& options) {
  return {.progress_bar = !options.no_progress,
          .logdir = options.logdir,
          .csv = options.csv,
          .epochs = static_cast<double>(options.epochs)};
}

/// What a job with servers cannot do is refused, not ignored; by all its tasks, as none would come
/// to the others.
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
  refuse(options.auto_shard == "file" || options.auto_shard == "off", "--auto-shard=file or off",
         "; each worker reads all and takes its part");
  refuse(options.optimizer != "adam" || options.weight_decay > 0, "--optimizer or --weight-decay",
         "; its servers use Adam");
  refuse(options.clip_norm > 0, "--clip-norm", "; no one has all gradients");
  refuse(options.accumulation_steps > 1, "--accumulation-steps", "; use a larger --batch-size");
  refuse(options.drop_remainder, "--drop-remainder", "; --steps says when to stop");
  refuse(options.communication == "mpi", "--communication=mpi", "");
  refuse(options.batch_split != "equal", "--batch-split=speed",
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

void coordinate(const PsTask& task, const TrainerOptions& options) {
  Outputs outputs(server_output_options(options), true);
  const auto workers = static_cast<double>(task.workers.size());
  std::optional<Journal> journal;
  std::int64_t logged = 0;
  const auto on_progress = [&](const CoordinatorProgress& now) {
    if (!journal) {
      journal.emplace(workers * static_cast<double>(options.batch_size) /
                      static_cast<double>(now.samples));
    }
    const auto size = static_cast<std::int64_t>(task.workers.size());
    const std::int64_t step = now.done / size;
    const std::int64_t last = (now.batches + size - 1) / size;
    outputs.progress(step, last);
    const bool is_end = now.done == now.batches;
    if (is_end || (step > logged && step % options.log_every == 0)) {
      logged = step;
      outputs.line(journal->line(is_end ? last : step, now.totals, now.input_seconds / workers,
                                 now.waiting_seconds / workers));
    }
  };
  CoordinatorOptions coordinator;
  coordinator.address = TaskAddress::parse(task.chief, "the chief");
  coordinator.token = task.token;
  coordinator.workers = static_cast<int>(task.workers.size());
  coordinator.sync = options.update == "sync";
  coordinator.job = job_settings(task, options);
  coordinator.batches = [&](std::int64_t samples) {
    const std::int64_t whole =
        (samples * options.epochs + options.batch_size - 1) / options.batch_size;
    return options.steps > 0 ? options.steps * static_cast<std::int64_t>(task.workers.size())
                             : whole;
  };
  coordinator.peer_timeout = options.peer_timeout;
  coordinator.rendezvous_timeout = options.rendezvous_timeout;
  Coordinator running(
      std::move(coordinator), [&](const std::string& text) { outputs.say(text); }, on_progress);
  warn_without_token(task);
  outputs.say(fmt::format("chief: hands out batches of {} samples to {} workers from {}",
                          options.batch_size, task.workers.size(), task.chief));
  running.run();
}

void train(const PsTask& task, const TrainerOptions& options) {
  const std::unique_ptr<Device> device = make_device(options.device);
  const bool first = task.index == 0;
  OutputOptions output = server_output_options(options);
  if (!task.chief.empty()) {
    output.csv.clear(); // The chief's to write.
  }
  Outputs outputs(output, first);
  DataPlaces places = data_places_from_env();
  places.progress_bar = !options.no_progress && isatty(STDERR_FILENO) == 1;
  const Dataset data =
      load_dataset(locate_dataset(options.data, places),
                   {AutoShard::data, task.index, static_cast<int>(task.workers.size())});
  PsWorker worker(task, options, data, *device);
  std::optional<CoordinatorLink> chief;
  if (!task.chief.empty()) {
    chief.emplace(CoordinatorLinkOptions{.address = task.chief,
                                         .token = task.token,
                                         .worker = task.index,
                                         .workers = static_cast<int>(task.workers.size()),
                                         .job = job_settings(task, options),
                                         .samples = static_cast<std::int64_t>(data.train.count),
                                         .peer_timeout = options.peer_timeout,
                                         .rendezvous_timeout = options.rendezvous_timeout});
  }
  const std::int64_t begin = worker.connect();
  const auto global_batch =
      static_cast<double>(options.batch_size) * static_cast<double>(task.workers.size());
  const auto samples = static_cast<double>(data.train.count);
  const std::int64_t last =
      options.steps > 0 ? options.steps : steps_of_epochs(task, options, data.train.count);
  outputs.choices(
      {{"workers", fmt::format("{} (from TF_CONFIG)", task.workers.size())},
       {"network", worker.client().describe()},
       {"updates",
        fmt::format("{}, variables cut by {}", update_text(options), options.partitioner)},
       {"device", device->describe()},
       {"data", fmt::format("{}: {} images to train on{}", data.folder, with_commas(samples),
                            chief ? ", batches handed out by the chief" : "")}});
  if (chief) {
    worker.train_for(*chief, begin);
  } else {
    Journal progress(global_batch / samples);
    worker.train(begin, last, [&](std::int64_t step, const Score& totals) {
      outputs.progress(step, last);
      if (first && (step % options.log_every == 0 || step == last)) {
        outputs.line(
            progress.line(step, totals, worker.input_seconds(), worker.client().seconds_waiting()));
      }
    });
  }
  const bool reports = worker.client().is_first();
  worker.client().goodbye();
  if (reports) {
    const auto alone = connect(Cluster{}, {});
    std::optional<Outputs> instead; // Of those before this one, which were lost.
    (first ? outputs : instead.emplace(output, true))
        .held_out(evaluate(worker.model(), data.test, *device,
                           static_cast<std::size_t>(options.batch_size), *alone),
                  last);
  }
}

void benchmark(const PsTask& task, const TrainerOptions& options) {
  const Dataset data =
      synthetic_dataset(k_benchmark_samples, static_cast<std::uint64_t>(options.seed));
  const std::unique_ptr<Device> device = make_device(options.device);
  PsWorker worker(task, options, data, *device);
  const std::int64_t begin = worker.connect();
  const std::int64_t steps = options.steps > 0 ? options.steps : k_benchmark_steps;
  const std::int64_t window = std::max<std::int64_t>(steps / (k_server_windows + 1), 1);
  std::vector<double> rates;
  double since = now();
  std::int64_t counted = 0;
  worker.train(begin, begin + window * (k_server_windows + 1),
               [&](std::int64_t step, const Score& totals) {
                 if ((step - begin) % window == 0) {
                   rates.push_back(static_cast<double>(totals.count - counted) / (now() - since));
                   counted = totals.count;
                   since = now();
                 }
               });
  worker.client().goodbye();
  if (task.index == 0 && rates.size() > 1) {
    rates.erase(rates.begin()); // Warm-up.
    std::sort(rates.begin(), rates.end());
    say(fmt::format("{} dtrain {} ps={} workers={} batch/replica={} best {:.0f} samples/s median "
                    "{:.0f} | waiting {:.3f} s | {} | {}",
                    options.model, trainer_version(), task.servers.size(), task.workers.size(),
                    options.batch_size, rates.back(), rates[rates.size() / 2],
                    worker.client().seconds_waiting(), worker.client().describe(),
                    device->describe()));
  }
}

} // namespace

std::optional<PsTask> parameter_server_task(const GetEnv& get) {
  const std::string text = get("TF_CONFIG").value_or("");
  if (text.empty()) {
    return std::nullopt;
  }
  const TfConfig config = parse_tf_config(text);
  PsTask task;
  for (const TfConfig::Job& job : config.cluster) {
    if (job.type == "ps") {
      task.servers = job.addresses;
    } else if (job.type == "worker") {
      task.workers = job.addresses;
    } else if (job.type == "chief") {
      task.chief = job.addresses.front();
    }
  }
  if (task.servers.empty()) {
    return std::nullopt;
  }
  if (task.workers.empty()) {
    throw ClusterError("TF_CONFIG: cluster.ps without cluster.worker: parameter servers need a "
                       "worker to train");
  }
  if (config.task_type == "ps") {
    task.role = PsTask::Role::server;
  } else if (config.task_type == "chief") {
    task.role = PsTask::Role::chief;
  } else if (config.task_type != "worker") {
    throw ClusterError(fmt::format("TF_CONFIG: a job with ps has tasks ps, worker and chief only "
                                   "here; take cluster.{} out",
                                   config.task_type));
  }
  task.index = config.task_index;
  task.token = get("DTRAIN_JOB_TOKEN").value_or("");
  return task;
}

std::optional<PsTask> parameter_server_task() {
  return parameter_server_task([](const char* name) -> std::optional<std::string> {
    const char* value = std::getenv(name);
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  });
}

void run_parameter_server_task(const PsTask& task, const TrainerOptions& options) {
  choose_strategy(options.strategy, {.source = "TF_CONFIG",
                                     .workers = static_cast<int>(task.workers.size()),
                                     .servers = static_cast<int>(task.servers.size())});
  refuse_what_servers_lack(task, options);
  switch (task.role) {
  case PsTask::Role::server:
    serve(task, options);
    break;
  case PsTask::Role::chief:
    coordinate(task, options);
    break;
  case PsTask::Role::worker:
    options.benchmark > 0 ? benchmark(task, options) : train(task, options);
    break;
  }
}

} // namespace trainer
