#include "trainer/strategy/parameter_server/worker.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include <fmt/format.h>

#include "trainer/device/cpu/kernels.h"
#include "trainer/device/step_state.h"
#include "trainer/errors.h"
#include "trainer/run/replica.h"
#include "trainer/strategy/shards.h"

namespace trainer {

void say(const std::string& text) {
  fmt::print("{}\n", text);
  (void)std::fflush(stdout);
}

namespace {

ClientOptions client_options(const PsJob& job, const Dataset& data, bool is_host) {
  ClientOptions client;
  client.servers = job.task.servers;
  client.chief = job.is_benchmark ? "" : job.task.chief;
  client.token = job.task.token;
  client.self = self_of(job, data.train.count);
  client.self.settings.data = digest(data);
  // Of what the servers hold.
  std::string_view(is_host ? "panels" : "row-major")
      .copy(client.self.settings.kernels.data(), client.self.settings.kernels.size() - 1);
  client.shared_memory = job.shared_memory;
  client.peer_timeout = job.peer_timeout;
  client.rendezvous_timeout = job.rendezvous_timeout;
  return client;
}

} // namespace

PsWorker::PsWorker(const PsJob& job, const Dataset& data, Device& device)
    : job_(job), data_(data), device_(device), outcomes_(device),
      model_(make_model(fitted(job.run.model, data), device)),
      client_(client_options(job, data, device.is_host()), model_->tensors().arena_size(), say),
      parameters_(device.allocate(device.is_host() ? 0 : client_.parameters().size(), DType::f32)),
      gradients_(device.allocate(parameters_.size(), DType::f32)),
      owner_(model_->units(), device.is_host() ? Arenas{client_.parameters(), client_.gradients()}
                                               : Arenas{parameters_.span(), gradients_.span()}),
      scale_(device.allocate(1, DType::f32)), squares_(device.allocate(1, DType::f64)) {
  model_->initialize(static_cast<std::uint64_t>(job.run.seed), client_.parameters());
}

std::int64_t PsWorker::connect() {
  if (client_.has_chief()) {
    client_.meet_chief();
  }
  const std::int64_t step = client_.connect();
  const std::size_t gradients = client_.gradients().size();
  const std::size_t bucket = bucket_floats(job_.run.step.buckets, gradients);
  const bool sends = client_.sends_gradients();
  // What is worth a frame to each server; besides, all that the network takes goes bucket by
  // bucket.
  const std::size_t piece = std::max(bucket * job_.task.servers.size(), gradients / 16);
  passes_.emplace(*model_, device_, job_.run.step.rows_at_once, sends ? bucket : SIZE_MAX,
                  !device_.is_host(), [this, sends, piece](std::size_t count) {
                    if (count >= sent_ahead_ + piece) {
                      sent_ahead_ = count;
                    }
                    if (sends) {
                      client_.final(sent_ahead_);
                    }
                  });
  return step;
}

ParameterOwner& PsWorker::owner() {
  if (!device_.is_host()) {
    device_.stream().copy(client_.parameters().data(), parameters_.memory(), parameters_.bytes());
  }
  return owner_;
}

Score PsWorker::compute(const Batch& batch, std::int64_t step) {
  if (const float scale = 1.0F / static_cast<float>(batch.rows); scale != scaled_by_) {
    device_.stream().copy(&scale, scale_.memory(), sizeof scale);
    scaled_by_ = scale;
  }
  sent_ahead_ = 0;
  passes_->run(batch, scale_.data(), owner(), &outcomes_.begin()->score);
  outcomes_.send(step);
  const double limit = job_.run.step.clip_norm;
  double squares = 0;
  if (limit > 0) {
    const auto gradients = device_.is_host() ? client_.gradients() : gradients_.span();
    auto* const sum = static_cast<double*>(squares_.memory());
    device_.kernels().squares(device_.stream(), gradients.size(), gradients.data(), sum);
    device_.stream().copy(sum, &squares, sizeof squares);
  }
  if (!device_.is_host()) {
    device_.stream().copy(gradients_.memory(), client_.gradients().data(), gradients_.bytes());
  }
  outcomes_.wait();
  const Score score = outcomes_.take().score;
  const double norm = std::sqrt(squares);
  if (!std::isfinite(score.loss + norm)) {
    const bool is_loss = !std::isfinite(score.loss);
    throw Error(fmt::format("worker {}: the {} of step {} is {}: the values that the servers hold "
                            "are lost; start again with a smaller --learning-rate",
                            job_.task.index, is_loss ? "loss" : "norm of the gradients", step,
                            is_loss ? score.loss : norm));
  }
  clipping_ = limit > 0 ? clipping_factor(norm, static_cast<float>(limit)) : 1;
  return score;
}

void PsWorker::train(std::int64_t step, std::int64_t last,
                     const std::function<void(std::int64_t, const Score&)>& after_step) {
  const auto batch_size = static_cast<std::size_t>(job_.batch_size());
  const auto workers = static_cast<std::int64_t>(job_.task.workers.size());
  Loader loader(data_.train, device_,
                {batch_size, 0, 1, static_cast<std::uint64_t>(job_.run.seed), 0, INT64_MAX});
  WorkReport report;
  report.version = step;
  report.generation = client_.generation();
  const auto next = [&]() -> std::optional<std::int64_t> {
    if (client_.has_chief()) {
      return client_.next(report);
    }
    return report.version < last ? std::optional(report.version * workers + job_.task.index)
                                 : std::nullopt;
  };
  for (double waited = client_.seconds_waiting(); const auto number = next();) {
    const std::int64_t before = report.version;
    const Batch& batch = loader.batch_at(static_cast<std::uint64_t>(*number) * batch_size);
    const Score score = compute(batch, before);
    const ParameterClient::Values values = client_.step(before, score, batch.rows, clipping_);
    const bool is_done = client_.generation() == report.generation;
    report = {.version = values.step,
              .generation = client_.generation(),
              .score = is_done ? score : Score{},
              .input_seconds = loader.seconds() - input_seconds_,
              .waiting_seconds = client_.seconds_waiting() - waited};
    input_seconds_ = loader.seconds();
    waited = client_.seconds_waiting();
    if (!client_.has_chief() && values.step > before) {
      after_step(values.step, values.totals);
    }
  }
}

} // namespace trainer
