#include "trainer/strategy/parameter_server/worker.h"

#include <cstdio>
#include <utility>

#include <fmt/format.h>

#include "trainer/collectives/single_rank.h"
#include "trainer/data/loader.h"
#include "trainer/run/evaluate.h"
#include "trainer/strategy/parameter_server/served.h"

namespace trainer {

void say(const std::string& text) {
  fmt::print("{}\n", text);
  (void)std::fflush(stdout);
}

namespace {

WorkerHello hello_of(const PsJob& job, const Dataset& data, bool is_host) {
  WorkerHello self = self_of(job, data.train.count);
  self.settings.data = digest(data);
  // Of what the servers hold.
  std::string_view(is_host ? "panels" : "row-major")
      .copy(self.settings.kernels.data(), self.settings.kernels.size() - 1);
  return self;
}

} // namespace

PsWorker::PsWorker(const PsJob& job, const Dataset& data, Device& device)
    : job_(job), data_(data),
      alone_(make_single_rank(&device, fmt::format("worker {}", job.task.index))),
      replica_(fitted(job.run.model, data), device),
      client_(job, hello_of(job, data, device.is_host()), replica_.model->tensors().arena_size(),
              say, &device) {
  replica_.place(client_.parameters(), client_.gradients());
  replica_.model->initialize(static_cast<std::uint64_t>(job.run.seed), client_.parameters());
  if (client_.has_chief()) {
    client_.meet_chief();
  }
  replica_.optimizer.set_state(client_.connect(), 0, {});
  const StepOptions& options = job.run.step;
  training_.emplace(*alone_, replica_, options,
                    std::make_unique<Served>(client_, replica_, options.buckets,
                                             options.limits(replica_.precision).need_norm()));
}

Score PsWorker::evaluate() {
  training_->exchange().receive();
  return trainer::evaluate(*replica_.model, training_->exchange().owner(), data_.test,
                           replica_.device, job_.run.step.rows_at_once, *alone_);
}

void PsWorker::train(std::int64_t last,
                     const std::function<void(std::int64_t, const Score&)>& after_step) {
  const auto batch_size = static_cast<std::size_t>(job_.batch_size());
  const auto workers = static_cast<std::int64_t>(job_.task.workers.size());
  Loader loader(data_.train, replica_.device,
                {batch_size, 0, 1, static_cast<std::uint64_t>(job_.run.seed), 0, INT64_MAX},
                {.leaves_gathering = true});
  Request report{.generation = client_.generation(), .step = replica_.optimizer.step()};
  const auto next = [&]() -> std::optional<std::int64_t> {
    if (client_.has_chief()) {
      return client_.next(report);
    }
    return report.step < last ? std::optional(report.step * workers + job_.task.index)
                              : std::nullopt;
  };
  for (double waited = client_.seconds_waiting(); const auto number = next();) {
    const Batch& batch = loader.batch_at(static_cast<std::uint64_t>(*number) * batch_size);
    const Score score = training_->run(batch);
    const bool is_done = client_.generation() == report.generation;
    const std::int64_t before = report.step;
    report = {.generation = client_.generation(),
              .step = replica_.optimizer.step(),
              .score = is_done ? score : Score{},
              .input_seconds = batch.seconds,
              .waiting_seconds = client_.seconds_waiting() - waited};
    waited = client_.seconds_waiting();
    if (!client_.has_chief() && report.step > before) {
      after_step(report.step, client_.values().totals);
    }
  }
}

} // namespace trainer
