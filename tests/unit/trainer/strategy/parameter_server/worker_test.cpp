#include "trainer/strategy/parameter_server/worker.h"

#include <list>
#include <memory>
#include <vector>

#include <doctest/doctest.h>

#include "tests/unit/trainer/collectives/ranks.h"
#include "tests/unit/trainer/strategy/parameter_server/running.h"
#include "tests/unit/trainer/temp_folder.h"
#include "trainer/collectives/single_rank.h"
#include "trainer/data/loader.h"

// A worker of servers takes the step of ranks without any, and holds the same bits.
namespace trainer {
namespace {

using namespace test;

constexpr std::int64_t k_steps = 12;
constexpr std::size_t k_rows = 16; ///< In a pass, of two a step.

PsJob job_with(std::vector<std::string> servers) {
  return training_job(std::move(servers), 16 << 10, k_rows, k_steps);
}

std::vector<float> train_with_servers(
    const PsJob& job, const Dataset& data,
    const std::function<void(std::int64_t)>& after_step = [](std::int64_t) {}) {
  PsWorker worker(job, data, test_device());
  CHECK(worker.client().values().step == 0);
  worker.train(k_steps, [&](std::int64_t step, const Score& totals) {
    CHECK(totals.count >= step * static_cast<std::int64_t>(2 * k_rows));
    after_step(step);
  });
  const std::span<float> values = worker.client().parameters();
  worker.client().goodbye();
  return {values.begin(), values.end()};
}

std::vector<float> train_without(const PsJob& job, const Dataset& data) {
  const auto alone = make_single_rank();
  Replica replica(fitted(job.run.model, data), {}, test_device(), *alone);
  replica.initialize(static_cast<std::uint64_t>(job.run.seed));
  replica.optimizer.set_learning_rate(job.run.learning_rate.peak);
  TrainingStep training(*alone, replica, job.run.step);
  Loader loader(data.train, test_device(),
                {2 * k_rows, 0, 1, static_cast<std::uint64_t>(job.run.seed), 0, k_steps});
  for (const Batch& batch : loader) {
    training.run(batch);
  }
  return {replica.parameters.begin(), replica.parameters.end()};
}

TEST_CASE("a worker of servers holds the bits of one process, clipped or not, however it sends") {
  const Dataset data = synthetic_dataset(300, 1);
  for (const bool shared : {true, false}) {
    for (const double clip_norm : {0.0, 0.2}) {
      CAPTURE(shared);
      CAPTURE(clip_norm);
      std::list<Running> running;
      std::vector<std::string> addresses;
      for (int i = 0; i < 2; ++i) {
        addresses.push_back(running.emplace_back(i).address());
      }
      PsJob job = job_with(addresses);
      job.shared_memory = shared;
      job.run.step.clip_norm = clip_norm;
      CHECK(train_with_servers(job, data) == train_without(job, data));
      for (Running& server : running) {
        CHECK(server.finish() == "");
        CHECK(server.has_said("ends at step 12:"));
      }
    }
  }
}

TEST_CASE("a worker takes again the steps that a server has lost, and holds the same bits") {
  const Dataset data = synthetic_dataset(300, 1);
  const TempFolder snapshots;
  const HeldPort port;
  auto server = std::make_unique<Running>(0, port.number(), snapshots.path());
  PsJob job = job_with({server->address()});
  job.policy.snapshot_every = 5;
  job.run.step.clip_norm = 0.2;
  std::vector<std::int64_t> steps;
  const auto values = train_with_servers(job, data, [&](std::int64_t step) {
    steps.push_back(step);
    if (steps.size() == 8) {
      server.reset();
      server = std::make_unique<Running>(0, port.number(), snapshots.path());
    }
  });
  CHECK(values == train_without(job, data));
  CHECK(steps == std::vector<std::int64_t>{1, 2, 3, 4, 5, 6, 7, 8, 6, 7, 8, 9, 10, 11, 12});
  CHECK(server->has_said("resumes at step 5 "));
  CHECK(server->finish() == "");
}

} // namespace
} // namespace trainer
