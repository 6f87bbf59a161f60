#include "trainer/strategy/parameter_server/task.h"

#include <algorithm>
#include <cstdlib>

#include <fmt/format.h>

#include "trainer/clock.h"
#include "trainer/device/device.h"
#include "trainer/errors.h"
#include "trainer/monitor/outputs.h"
#include "trainer/strategy/parameter_server/coordinator.h"
#include "trainer/strategy/parameter_server/server.h"
#include "trainer/strategy/parameter_server/worker.h"
#include "trainer/version.h"

namespace trainer {
namespace {

constexpr int k_server_windows = 5;
constexpr std::int64_t k_benchmark_steps = 5000;
constexpr std::size_t k_benchmark_samples = 60'000;

/// Writes the log of a job from running totals over all workers, which the servers send with the
/// values, or which the chief sums.
class Journal {
 public:
  /// `epochs_a_step`: of all workers together; `scored`: of a sample, a text's masked tokens.
  explicit Journal(double epochs_a_step, std::size_t scored = 1)
      : epochs_a_step_(epochs_a_step), scored_(static_cast<double>(scored)) {}

  /// Since the line before; all but `step` and `totals` are sums of this process or of an average
  /// worker.
  LogLine line(std::int64_t step, const Score& totals, double input_seconds, double waiting) {
    const double seconds = now() - since_;
    const auto count = static_cast<double>(totals.count - before_.count);
    const LogLine line{.step = step,
                       .epoch = epochs_a_step_ * static_cast<double>(step),
                       .loss = (totals.loss - before_.loss) / count,
                       .accuracy = static_cast<double>(totals.correct - before_.correct) / count,
                       .samples_per_second = count / scored_ / seconds,
                       .input_bound = (input_seconds - input_before_) / seconds,
                       .waiting = (waiting - waiting_before_) / seconds};
    since_ = now();
    before_ = totals;
    input_before_ = input_seconds;
    waiting_before_ = waiting;
    return line;
  }

 private:
  double epochs_a_step_;
  double scored_;
  double since_ = now();
  Score before_;
  double input_before_ = 0;
  double waiting_before_ = 0;
};

void warn_without_token(const PsTask& task) {
  if (task.token.empty()) {
    say(no_token_warning());
  }
}

void serve(const PsJob& job) {
  const PsTask& task = job.task;
  const std::string& address = task.servers[static_cast<std::size_t>(task.index)];
  const std::unique_ptr<Device> device =
      make_device("cpu"); // The server computes on the CPU, whatever the workers use.
  ParameterServer running(job, TaskAddress::parse(address, fmt::format("ps {}", task.index)),
                          *device, say);
  say(fmt::format("ps {}: listens at {} for {} workers; {}", task.index, address,
                  task.workers.size(), device->describe()));
  warn_without_token(task);
  running.run();
}

std::string update_text(const PsPolicy& policy) {
  if (policy.is_sync()) {
    return policy.backup_workers > 0
               ? fmt::format("synchronous, {} backup workers", policy.backup_workers)
               : "synchronous";
  }
  return policy.max_staleness < 0
             ? "asynchronous"
             : fmt::format("asynchronous, staleness at most {}", policy.max_staleness);
}

void coordinate(const PsJob& job) {
  const PsTask& task = job.task;
  Outputs outputs(job.outputs, true);
  const auto workers = static_cast<double>(task.workers.size());
  std::optional<Journal> journal;
  std::int64_t logged = 0;
  const auto on_progress = [&](const CoordinatorProgress& now) {
    if (!journal) {
      journal.emplace(static_cast<double>(job.global_batch()) / static_cast<double>(now.samples));
    }
    const auto size = static_cast<std::int64_t>(task.workers.size());
    const std::int64_t step = now.done / size;
    const std::int64_t last = (now.batches + size - 1) / size;
    outputs.progress(step, last);
    const bool is_end = now.done == now.batches;
    if (is_end || (step > logged && step % job.run.log_every == 0)) {
      logged = step;
      outputs.line(journal->line(is_end ? last : step, now.totals, now.input_seconds / workers,
                                 now.waiting_seconds / workers));
    }
  };
  Coordinator running(
      job, TaskAddress::parse(task.chief, "chief"),
      [&](std::uint64_t samples) { return self_of(job, samples); },
      [&](const std::string& text) { outputs.say(text); }, on_progress);
  warn_without_token(task);
  outputs.say(fmt::format("chief: hands out batches of {} samples to {} workers from {}",
                          job.batch_size(), task.workers.size(), task.chief));
  running.run();
}

void train(const PsJob& job) {
  const PsTask& task = job.task;
  const std::unique_ptr<Device> device = make_device(job.device, task.local_rank);
  const bool first = task.index == 0;
  OutputOptions output = job.outputs;
  if (!task.chief.empty()) {
    output.csv.clear(); // The chief writes it.
  }
  Outputs outputs(output, first);
  const Dataset data = find_dataset(job.data, task.index, static_cast<int>(task.workers.size()));
  PsWorker worker(job, data, *device);
  const auto samples = static_cast<double>(data.train.count);
  const std::int64_t last = self_of(job, data.train.count).settings.steps;
  outputs.choices(
      {{"workers", fmt::format("{} (from TF_CONFIG)", task.workers.size())},
       {"network", worker.client().describe()},
       {"updates", update_text(job.policy)},
       {"device", device->describe()},
       {"data", fmt::format("{}: {} {} to train on{}", data.folder, with_commas(samples),
                            data.train.source->kind().rows,
                            task.chief.empty() ? "" : ", batches handed out by the chief")}});
  Journal progress(static_cast<double>(job.global_batch()) / samples,
                   std::max<std::size_t>(data.train.source->width(field::Name::masked), 1));
  worker.train(last, [&](std::int64_t step, const Score& totals) {
    outputs.progress(step, last);
    if (first && (step % job.run.log_every == 0 || step == last)) {
      outputs.line(progress.line(step, totals, worker.input_seconds(), worker.waiting_seconds()));
    }
  });
  const bool reports = worker.client().is_first();
  worker.client().goodbye();
  if (reports) {
    std::optional<Outputs> instead; // The log of the workers before this one, which were lost.
    (first ? outputs : instead.emplace(output, true))
        .held_out(worker.evaluate(), last, scored_things(data));
  }
}

void benchmark(PsJob job) {
  job.task.chief.clear(); // A benchmark needs no batches from the chief.
  const PsTask& task = job.task;
  const Dataset data =
      synthetic_for(job.run.model, k_benchmark_samples, static_cast<std::uint64_t>(job.run.seed));
  const std::unique_ptr<Device> device = make_device(job.device, task.local_rank);
  PsWorker worker(job, data, *device);
  const std::int64_t begin = worker.client().values().step;
  const std::int64_t steps = job.run.steps > 0 ? job.run.steps : k_benchmark_steps;
  const std::int64_t window = std::max<std::int64_t>(steps / (k_server_windows + 1), 1);
  std::vector<double> rates;
  double since = now();
  std::int64_t counted = 0;
  worker.train(begin + window * (k_server_windows + 1),
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
                    job.run.model.name, trainer_version(), task.servers.size(), task.workers.size(),
                    job.batch_size(), rates.back(), rates[rates.size() / 2],
                    worker.waiting_seconds(), worker.client().describe(), device->describe()));
  }
}

} // namespace

WorkerHello self_of(const PsJob& job, std::uint64_t samples) {
  WorkerHello self{.worker = job.task.index,
                   .workers = static_cast<std::int64_t>(job.task.workers.size()),
                   .policy = job.policy};
  self.settings =
      make_run_settings(job.run, static_cast<int>(self.workers), false, {samples, false});
  self.settings.log_every = self.settings.checkpoint_every =
      0; // Not compared: each task has its own.
  if (!job.policy.is_sync()) {
    self.settings.learning_rate.update = static_cast<double>(self.settings.batch_size);
  }
  return self;
}

std::optional<PsTask> parameter_server_task() {
  const auto get = [](const char* name) -> std::optional<std::string> {
    const char* value = std::getenv(name);
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  };
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
  task.local_rank = local_rank_of(config, get);
  task.token = get("DTRAIN_JOB_TOKEN").value_or("");
  return task;
}

void run_parameter_server_task(const PsJob& job) {
  switch (job.task.role) {
  case PsTask::Role::server:
    serve(job);
    break;
  case PsTask::Role::chief:
    coordinate(job);
    break;
  case PsTask::Role::worker:
    job.is_benchmark ? benchmark(job) : train(job);
    break;
  }
}

} // namespace trainer
