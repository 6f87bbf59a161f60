#include "trainer/strategy/parameter_server/run.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include <fmt/format.h>
#include <unistd.h>
#include <zlib.h>

#include "trainer/clock.h"
#include "trainer/data/loader.h"
#include "trainer/data/locate.h"
#include "trainer/device/device.h"
#include "trainer/errors.h"
#include "trainer/evaluate.h"
#include "trainer/models/mlp.h"
#include "trainer/monitor/console.h"
#include "trainer/strategy/parameter_server/client.h"
#include "trainer/strategy/parameter_server/server.h"

namespace trainer {
namespace {

constexpr int k_windows = 5;
constexpr std::int64_t k_benchmark_steps = 5000;
constexpr std::size_t k_benchmark_samples = 60'000;

void say(const std::string& text) {
  fmt::print("{}\n", text);
  (void)std::fflush(stdout);
}

void serve(const PsTask& task, const TrainerOptions& options) {
  const std::string& address = task.servers[static_cast<std::size_t>(task.index)];
  const std::size_t colon = address.rfind(':');
  ServerOptions server;
  server.host = address.substr(0, colon);
  if (server.host.size() > 2 && server.host.front() == '[') {
    server.host = server.host.substr(1, server.host.size() - 2);
  }
  std::from_chars(address.data() + colon + 1, address.data() + address.size(), server.port);
  server.index = task.index;
  server.token = task.token;
  if (!options.snapshot_dir.empty()) {
    server.snapshot_dir =
        fmt::format("{}/ps-{}-of-{}", options.snapshot_dir, task.index, task.servers.size());
  }
  server.peer_timeout = options.peer_timeout;
  server.rendezvous_timeout = options.rendezvous_timeout;
  const Device device = select_device(options.device);
  ParameterServer running(server, *device.kernels, say);
  say(fmt::format("ps {}: listens at {} for {} workers; {}", task.index, address,
                  task.workers.size(), device.description));
  running.run();
}

/// The model's parameters as runs of 16-float rows of its arena, in the arena's order.
std::vector<Variable> variables_of(const MlpShape& shape, std::size_t parameter_count) {
  const std::size_t classes = padded(shape.classes);
  std::vector<Variable> variables;
  std::size_t offset = 0;
  const auto add = [&](const char* name, std::size_t count) {
    variables.push_back({name, offset, count / k_panel, k_panel});
    offset += count;
  };
  add("output.bias", classes);
  add("output.weight", classes * shape.hidden);
  add("hidden.bias", shape.hidden);
  add("hidden.weight", shape.hidden * shape.inputs);
  if (offset != parameter_count) {
    throw Error(
        fmt::format("the model has {} parameters, its variables {}", parameter_count, offset));
  }
  return variables;
}

std::uint32_t digest_of(const Split& split) {
  const uLong images = crc32_z(0, split.images.data(), split.images.size());
  return static_cast<std::uint32_t>(crc32_z(images, split.labels.data(), split.labels.size()));
}

/// A worker's.
std::int64_t steps_of_epochs(const PsTask& task, const TrainerOptions& options,
                             const Split& split) {
  const auto global_batch =
      static_cast<double>(options.batch_size) * static_cast<double>(task.workers.size());
  return static_cast<std::int64_t>(std::ceil(static_cast<double>(split.count) *
                                             static_cast<double>(options.epochs) / global_batch));
}

ClientOptions client_options(const PsTask& task, const TrainerOptions& options,
                             const Split& split) {
  ClientOptions client;
  client.servers = task.servers;
  client.worker = task.index;
  client.workers = static_cast<int>(task.workers.size());
  client.token = task.token;
  client.policy.sync = options.update == "sync";
  client.policy.backup_workers = static_cast<int>(options.backup_workers);
  client.policy.max_staleness = options.max_staleness;
  const std::int64_t steps = std::max(steps_of_epochs(task, options, split), options.steps) *
                             (client.policy.sync ? 1 : client.workers);
  client.policy.learning_rate = {options.learning_rate, parse_schedule(options.lr_schedule),
                                 static_cast<double>(steps)};
  client.policy.snapshot_every = options.snapshot_every;
  client.job = {{"seed", options.seed},
                {"batch size", options.batch_size},
                {"hidden", options.hidden},
                {"data digest", digest_of(split)}};
  client.partitioner = parse_partitioner(options.partitioner, task.servers.size());
  client.shared_memory = options.transport != "tcp";
  client.peer_timeout = options.peer_timeout;
  client.rendezvous_timeout = options.rendezvous_timeout;
  if (client.policy.sync ? options.max_staleness >= 0 : options.backup_workers > 0) {
    throw UsageError(fmt::format("{} goes with --update={} only",
                                 client.policy.sync ? "--max-staleness" : "--backup-workers",
                                 client.policy.sync ? "async" : "sync"));
  }
  if (client.policy.backup_workers >= client.workers) {
    throw UsageError(fmt::format("--backup-workers={}: must be fewer than the {} workers",
                                 options.backup_workers, client.workers));
  }
  return client;
}

/// One worker's model, on the client's arenas.
class Worker {
 public:
  Worker(const PsTask& task, const TrainerOptions& options, const Dataset& data,
         const CpuKernels& kernels)
      : options_(options), data_(data), kernels_(kernels), index_(task.index),
        workers_(static_cast<int>(task.workers.size())), shape_{.inputs = data.train.features,
                                                                .hidden = static_cast<std::size_t>(
                                                                    options.hidden),
                                                                .classes = data.classes},
        model_(shape_, kernels), client_(with_variables(client_options(task, options, data.train)),
                                         model_.parameter_count(), say) {
    model_.bind(client_.parameters(), client_.gradients());
    model_.initialize(static_cast<std::uint64_t>(options.seed));
  }

  std::int64_t connect() { return client_.connect(); }
  ParameterClient& client() { return client_; }
  Mlp& model() { return model_; }

  /// Trains from step `first` until `after_step` says no more; told the values that followed it.
  template <typename AfterStep>
  void train(std::int64_t first, std::int64_t last, const AfterStep& after_step) {
    const auto batch_size = static_cast<std::uint64_t>(options_.batch_size);
    std::int64_t step = first;
    while (step < last) {
      // One pass, unless a server that came back sends the job to another step.
      Loader loader(
          data_.train, kernels_,
          {static_cast<std::size_t>(batch_size), index_, workers_,
           static_cast<std::uint64_t>(options_.seed),
           static_cast<std::uint64_t>(step) * batch_size * static_cast<std::uint64_t>(workers_),
           last - step});
      for (const Batch& batch : loader) {
        const float scale = 1.0F / static_cast<float>(batch.rows);
        const Score score =
            model_.forward_backward(batch, scale, client_.gradients().size(), [](std::size_t) {});
        const std::int64_t expected = step + 1;
        const ParameterClient::Values values = client_.step(step, score);
        step = values.step;
        input_seconds_ = loaded_before_ + loader.seconds();
        after_step(step, values.totals);
        if (step != expected) {
          break;
        }
      }
      loaded_before_ += loader.seconds();
    }
  }

  double input_seconds() const { return input_seconds_; }

 private:
  ClientOptions with_variables(ClientOptions options) const {
    options.variables = variables_of(shape_, model_.parameter_count());
    return options;
  }

  const TrainerOptions& options_;
  const Dataset& data_;
  const CpuKernels& kernels_;
  int index_;
  int workers_;
  MlpShape shape_;
  Mlp model_;
  ParameterClient client_;
  double input_seconds_ = 0;
  double loaded_before_ = 0;
};

/// Lines of the log from the totals of all workers that the servers send along.
class Journal {
 public:
  explicit Journal(double global_batch_epochs) : epochs_a_step_(global_batch_epochs) {}

  LogLine line(std::int64_t step, const Score& totals, double input_seconds, double waiting) {
    const double seconds = now() - since_;
    const auto count = static_cast<double>(totals.count - before_.count);
    LogLine line;
    line.step = step;
    line.epoch = epochs_a_step_ * static_cast<double>(step);
    line.loss = (totals.loss - before_.loss) / count;
    line.accuracy = static_cast<double>(totals.correct - before_.correct) / count;
    line.samples_per_second = count / seconds;
    line.input_bound = (input_seconds - input_before_) / seconds;
    line.waiting = (waiting - waiting_before_) / seconds;
    since_ = now();
    before_ = totals;
    input_before_ = input_seconds;
    waiting_before_ = waiting;
    return line;
  }

 private:
  double epochs_a_step_;
  double since_ = now();
  Score before_;
  double input_before_ = 0;
  double waiting_before_ = 0;
};

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

void train(const PsTask& task, const TrainerOptions& options) {
  const Device device = select_device(options.device);
  const bool first = task.index == 0;
  Console console(!first, !options.no_progress);
  DataPlaces places = data_places_from_env();
  places.progress_bar = !options.no_progress && isatty(STDERR_FILENO) == 1;
  const Dataset data = load_dataset(locate_dataset(options.data, places));
  Worker worker(task, options, data, *device.kernels);
  const std::int64_t begin = worker.connect();
  const auto global_batch =
      static_cast<double>(options.batch_size) * static_cast<double>(task.workers.size());
  const auto samples = static_cast<double>(data.train.count);
  const std::int64_t last =
      options.steps > 0 ? options.steps : steps_of_epochs(task, options, data.train);
  console.choices(
      {{"workers", fmt::format("{} (from TF_CONFIG)", task.workers.size())},
       {"network", worker.client().describe()},
       {"updates",
        fmt::format("{}, variables cut by {}", update_text(options), options.partitioner)},
       {"device", device.description},
       {"data", fmt::format("{}: {} images to train on", data.folder, with_commas(samples))}});
  Journal progress(global_batch / samples);
  worker.train(begin, last, [&](std::int64_t step, const Score& totals) {
    console.progress(step, last);
    if (first && (step % options.log_every == 0 || step == last)) {
      console.line(
          progress.line(step, totals, worker.input_seconds(), worker.client().seconds_waiting()),
          static_cast<double>(options.epochs));
    }
  });
  worker.client().goodbye();
  if (first) {
    const auto alone = connect(Cluster{}, {});
    const Score score = evaluate(worker.model(), data.test, *device.kernels,
                                 static_cast<std::size_t>(options.batch_size), *alone);
    const auto count = static_cast<double>(score.count);
    console.say(fmt::format("held-out accuracy {:.2f} %  loss {:.4f}  ({} images)",
                            100 * static_cast<double>(score.correct) / count, score.loss / count,
                            with_commas(count)));
  }
}

void benchmark(const PsTask& task, const TrainerOptions& options) {
  const Dataset data =
      synthetic_dataset(k_benchmark_samples, static_cast<std::uint64_t>(options.seed));
  const Device device = select_device(options.device);
  Worker worker(task, options, data, *device.kernels);
  const std::int64_t begin = worker.connect();
  const std::int64_t steps = options.steps > 0 ? options.steps : k_benchmark_steps;
  const std::int64_t window = std::max<std::int64_t>(steps / (k_windows + 1), 1);
  std::vector<double> rates;
  double since = now();
  std::int64_t counted = 0;
  worker.train(begin, begin + window * (k_windows + 1),
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
    say(fmt::format("mlp dtrain {} ps={} workers={} batch/replica={} best {:.0f} samples/s median "
                    "{:.0f} | waiting {:.3f} s | {} | {}",
                    trainer_version(), task.servers.size(), task.workers.size(), options.batch_size,
                    rates.back(), rates[rates.size() / 2], worker.client().seconds_waiting(),
                    worker.client().describe(), device.description));
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
  bool has_chief = false;
  for (const TfConfig::Job& job : config.cluster) {
    has_chief = has_chief || job.type == "chief";
    if (job.type == "ps") {
      task.servers = job.addresses;
    } else if (job.type == "worker") {
      task.workers = job.addresses;
    }
  }
  if (task.servers.empty()) {
    return std::nullopt;
  }
  if (task.workers.empty()) {
    throw ClusterError("TF_CONFIG: cluster.ps without cluster.worker: parameter servers need a "
                       "worker to train");
  }
  if (has_chief || (config.task_type != "ps" && config.task_type != "worker")) {
    throw ClusterError(fmt::format("TF_CONFIG: a job with ps has tasks ps and worker only here; "
                                   "take cluster.{} out",
                                   has_chief ? "chief" : config.task_type));
  }
  task.is_server = config.task_type == "ps";
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
  if (task.is_server) {
    serve(task, options);
  } else if (options.benchmark > 0) {
    benchmark(task, options);
  } else {
    train(task, options);
  }
}

} // namespace trainer
