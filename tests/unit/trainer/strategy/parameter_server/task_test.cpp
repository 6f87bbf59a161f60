#include "trainer/strategy/parameter_server/task.h"

#include <doctest/doctest.h>

#include "trainer/run/run_settings.h"

namespace trainer {
namespace {

TEST_CASE("workers of servers have the learning rates of those without, after as many samples") {
  for (const bool is_sync : {true, false}) {
    for (const int workers : {1, 3}) {
      for (const std::int64_t steps : {0, 2, 50}) {
        PsJob job;
        job.policy.sync = is_sync ? 1 : 0;
        job.run.epochs = 2;
        job.run.step.rows_at_once = 64;
        job.run.steps = steps;
        job.run.accumulation_steps = steps == 2 ? 3 : 1;
        constexpr std::uint64_t k_samples = 1000; // Two epochs are no multiple of a step's.
        job.task.workers.resize(static_cast<std::size_t>(workers));
        const LearningRate of_samples =
            make_run_settings(job.run, workers, false, {k_samples, false}).learning_rate;
        const LearningRate of_updates = self_of(job, k_samples).settings.learning_rate;
        const std::int64_t a_step = is_sync ? 1 : workers;
        for (std::int64_t step = 0; step < 10; ++step) {
          CAPTURE(step);
          CHECK(of_updates.at(static_cast<double>(step * a_step) * of_updates.update) ==
                doctest::Approx(of_samples.at(static_cast<double>(step * job.global_batch())))
                    .epsilon(1e-12));
        }
      }
    }
  }
}

} // namespace
} // namespace trainer
