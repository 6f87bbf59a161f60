#include "trainer/run_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "trainer/errors.h"

namespace trainer {

RunPlan make_run_plan(const TrainerOptions& options, int ranks, std::uint64_t samples) {
  const auto global_batch =
      static_cast<std::uint64_t>(options.batch_size) * static_cast<std::uint64_t>(ranks);
  const std::uint64_t total = samples * static_cast<std::uint64_t>(options.epochs);
  const auto steps = static_cast<std::int64_t>((total + global_batch - 1) / global_batch);
  RunPlan plan{};
  plan.batch_size = options.batch_size;
  plan.hidden = options.hidden;
  plan.steps = options.steps > 0 ? options.steps : steps;
  plan.log_every = options.log_every;
  plan.checkpoint_every = options.checkpoint_every;
  plan.seed = static_cast<std::uint64_t>(options.seed);
  plan.samples = samples;
  // A run that --steps stops early is on the same schedule, so that it may be continued.
  const std::uint64_t whole =
      std::max(total, global_batch * static_cast<std::uint64_t>(options.steps));
  plan.learning_rate = {options.learning_rate, parse_schedule(options.lr_schedule),
                        static_cast<double>(whole)};
  plan.split_by_speed = options.batch_split == "speed" ? 1 : 0;
  plan.wire = static_cast<std::int64_t>(bucket_options(options).wire);
  plan.timeline = options.timeline.empty() ? 0 : 1;
  return plan;
}

void check_same_plan(const RunPlan& plan, Communicator& communicator) {
  RunPlan first = plan;
  communicator.broadcast(std::as_writable_bytes(std::span(&first, 1)), 0, "plan");
  if (!(first == plan)) {
    throw UsageError(fmt::format("rank {} has other flags or data than rank 0; start all ranks "
                                 "with the same",
                                 communicator.rank()));
  }
}

} // namespace trainer
