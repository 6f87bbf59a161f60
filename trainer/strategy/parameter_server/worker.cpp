#include "trainer/strategy/parameter_server/worker.h"

#include <cmath>
#include <cstdio>

#include <fmt/format.h>
#include <zlib.h>

#include "trainer/device/cpu/kernels.h"
#include "trainer/errors.h"

namespace trainer {

void say(const std::string& text) {
  fmt::print("{}\n", text);
  (void)std::fflush(stdout);
}

namespace {

/// The model's tensors as runs of 16-float rows of its arena, in the arena's order.
std::vector<Variable> variables_of(const TensorTable& tensors) {
  std::vector<Variable> variables;
  for (const Tensor& tensor : tensors.tensors()) {
    variables.push_back({tensor.name, tensor.offset, tensor.size / k_panel, k_panel});
  }
  return variables;
}

std::uint32_t digest_of(const Split& split) {
  const uLong images = crc32_z(0, split.images.data(), split.images.size());
  return static_cast<std::uint32_t>(crc32_z(images, split.labels.data(), split.labels.size()));
}

ClientOptions client_options(const PsTask& task, const TrainerOptions& options, const Split& split,
                             std::vector<Variable> variables) {
  ClientOptions client;
  client.servers = task.servers;
  client.worker = task.index;
  client.workers = static_cast<int>(task.workers.size());
  client.token = task.token;
  client.policy.sync = options.update == "sync";
  client.policy.backup_workers = static_cast<int>(options.backup_workers);
  client.policy.max_staleness = options.max_staleness;
  client.policy.learning_rate = learning_rate(task, options, split.count);
  client.policy.snapshot_every = options.snapshot_every;
  client.policy.gradients = bucket_options(options).wire;
  client.job = job_settings(task, options);
  client.job["data digest"] = digest_of(split);
  client.variables = std::move(variables);
  client.partitioner = parse_partitioner(options.partitioner, task.servers.size());
  client.shared_memory = options.transport != "tcp";
  client.peer_timeout = options.peer_timeout;
  client.rendezvous_timeout = options.rendezvous_timeout;
  return client;
}

} // namespace

PsWorker::PsWorker(const PsTask& task, const TrainerOptions& options, const Dataset& data,
                   Device& device)
    : options_(options), data_(data), device_(device), index_(task.index),
      workers_(static_cast<int>(task.workers.size())),
      model_(make_model(model_options(options, data), device)),
      client_(client_options(task, options, data.train, variables_of(model_->tensors())),
              model_->tensors().arena_size(), say) {
  model_->bind(client_.parameters(), client_.gradients());
  model_->initialize(static_cast<std::uint64_t>(options.seed));
}

Score PsWorker::compute(const Batch& batch, std::int64_t step) {
  const float scale = 1.0F / static_cast<float>(batch.rows);
  const Score score = model_->forward_backward(batch, scale, false, {});
  if (!std::isfinite(score.loss)) {
    throw Error(
        fmt::format("worker {}: the loss of step {} is {}: the values that the servers hold "
                    "are lost; start anew with a smaller --learning-rate",
                    index_, step, score.loss));
  }
  return score;
}

void PsWorker::train_for(CoordinatorLink& chief, std::int64_t step) {
  const auto batch_size = static_cast<std::size_t>(options_.batch_size);
  Loader loader(data_.train, device_,
                {batch_size, 0, 1, static_cast<std::uint64_t>(options_.seed), 0, INT64_MAX});
  WorkReport report;
  report.version = step;
  while (const auto number = chief.next(report)) {
    const double input = loader.seconds();
    const double waiting = client_.seconds_waiting() + chief.seconds_waiting();
    const Batch& batch = loader.batch_at(static_cast<std::uint64_t>(*number) * batch_size);
    const Score score = compute(batch, report.version);
    const ParameterClient::Values values = client_.step(report.version, score);
    report.went_back = values.step <= report.version ? 1 : 0;
    report.version = values.step;
    report.loss = score.loss;
    report.correct = score.correct;
    report.count = score.count;
    report.input_seconds = loader.seconds() - input;
    report.waiting_seconds = client_.seconds_waiting() + chief.seconds_waiting() - waiting;
  }
  chief.goodbye();
}

} // namespace trainer
