#include "tests/unit/trainer/strategy/parameter_server/running.h"

#include <algorithm>
#include <cmath>

#include <doctest/doctest.h>

#include "tests/unit/trainer/largest_difference.h"
#include "trainer/optim/optimizer.h"

namespace trainer::test {
namespace {

/// The gradient that a worker finds for these values at this step: pulls them to a moving target.
void fill_gradient(std::span<const float> values, std::int64_t step, std::int64_t worker,
                   std::span<float> gradient) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    gradient[i] = values[i] - std::sin(static_cast<float>(i) + 0.1F * static_cast<float>(step)) -
                  0.1F * static_cast<float>(worker);
  }
}

} // namespace

WorkerOptions options_for(std::vector<std::string> servers, int worker, int workers) {
  WorkerOptions options;
  options.job.task.servers = std::move(servers);
  options.self.worker = worker;
  options.self.workers = workers;
  options.job.task.token = k_token;
  options.self.settings.learning_rate.peak = 0.01;
  options.self.settings.seed = 7;
  options.job.peer_timeout = k_peer_timeout;
  options.job.rendezvous_timeout = 20;
  return options;
}

PsJob training_job(std::vector<std::string> servers, const Buckets& buckets, std::size_t rows,
                   std::int64_t steps) {
  PsJob job;
  job.task.servers = std::move(servers);
  job.task.workers = {"127.0.0.1:1"};
  job.task.token = k_token;
  job.run.step = {.buckets = buckets, .rows_at_once = rows};
  job.run.accumulation_steps = 2;
  job.run.steps = steps;
  job.run.seed = 5;
  job.run.learning_rate = {.peak = 2e-3};
  job.peer_timeout = k_peer_timeout;
  return job;
}

std::vector<float> work(const WorkerOptions& options, std::int64_t steps,
                        const std::function<void(std::int64_t)>& before_step,
                        std::function<void(const std::string&)> notice) {
  ParameterClient client = options.client(k_count, std::move(notice));
  for (std::size_t i = 0; i < k_count; ++i) {
    client.parameters()[i] = 0.001F * static_cast<float>(i);
  }
  std::int64_t step = client.connect();
  while (step < steps) {
    if (before_step) {
      before_step(step);
    }
    fill_gradient(client.parameters(), step, options.self.worker, client.gradients());
    for (std::size_t count = 0; count < k_count; count += 100) {
      client.final(count);
    }
    step = client.step(step, {1.0, 1, 1}).step;
  }
  client.goodbye();
  return {client.parameters().begin(), client.parameters().end()};
}

std::vector<float> expected_after(std::int64_t steps, int workers, WireType gradients) {
  Buffer parameters(k_count);
  Buffer mean(k_count);
  for (std::size_t i = 0; i < k_count; ++i) {
    parameters.data()[i] = 0.001F * static_cast<float>(i);
  }
  Optimizer adam({.learning_rate = 0.01}, parameters.span(), mean.span(), test_device());
  std::vector<float> one(k_count);
  for (std::int64_t step = 0; step < steps; ++step) {
    std::fill_n(mean.data(), k_count, 0.0F);
    for (int worker = 0; worker < workers; ++worker) {
      fill_gradient(parameters.span(), step, worker, one);
      if (gradients != WireType::fp32) {
        std::vector<std::uint16_t> halves(k_count);
        portable_wire_kernels(gradients).narrow(halves.data(), one.data(), k_count);
        portable_wire_kernels(gradients).widen(one.data(), halves.data(), k_count);
      }
      for (std::size_t i = 0; i < k_count; ++i) {
        mean.data()[i] += one[i] / static_cast<float>(workers);
      }
    }
    adam.begin_step();
    adam.update(0, k_count);
  }
  return {parameters.data(), parameters.data() + k_count};
}

void check_close(const std::vector<float>& a, const std::vector<float>& b) {
  CHECK(largest_difference(a, b) < 1e-5);
}

} // namespace trainer::test
