#include "trainer/run_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>

#include "trainer/comm/agreement.h"
#include "trainer/errors.h"

namespace trainer {
namespace {

constexpr std::size_t k_longest_difference = 256;

} // namespace

RunPlan make_run_plan(const TrainerOptions& options, int ranks, bool is_elastic,
                      const AllSamples& samples) {
  const auto global_batch =
      static_cast<std::uint64_t>(options.batch_size) * static_cast<std::uint64_t>(ranks);
  const std::uint64_t total = samples.count * static_cast<std::uint64_t>(options.epochs);
  const auto steps = static_cast<std::int64_t>(
      (total + (options.drop_remainder ? 0 : global_batch - 1)) / global_batch);
  if (steps == 0) {
    throw UsageError(fmt::format("--drop-remainder: {} samples do not fill one step of {}", total,
                                 global_batch));
  }
  RunPlan plan{};
  plan.batch_size = options.batch_size;
  plan.hidden = options.hidden;
  plan.steps = options.steps > 0 ? options.steps : steps;
  if (samples.one_pass) {
    plan.steps = std::min(plan.steps, steps);
    plan.one_pass = 1;
  }
  plan.end = !is_elastic         ? 0
             : options.steps > 0 ? global_batch * static_cast<std::uint64_t>(options.steps)
                                 : total;
  plan.log_every = options.log_every;
  plan.checkpoint_every = options.checkpoint_every;
  plan.seed = static_cast<std::uint64_t>(options.seed);
  plan.samples = samples.count;
  // A run that --steps stops early is on the same schedule, so that it may be continued.
  const std::uint64_t whole = std::max(
      total, global_batch * static_cast<std::uint64_t>(samples.one_pass ? 0 : options.steps));
  plan.learning_rate = {options.learning_rate, parse_schedule(options.lr_schedule),
                        static_cast<double>(whole)};
  plan.split_by_speed = options.batch_split == "speed" ? 1 : 0;
  plan.wire = static_cast<std::int64_t>(bucket_options(options).wire);
  plan.timeline = options.timeline.empty() ? 0 : 1;
  return plan;
}

namespace {

/// "--seed is 1 and 0", where something differs.
std::string difference(const RunPlan& mine, const RunPlan& first) {
  std::string found;
  const auto compare = [&](const char* what, const auto& a, const auto& b) {
    if (found.empty() && !(a == b)) {
      found = fmt::format("{} is {} and {}", what, a, b);
    }
  };
  compare("--batch-size", mine.batch_size, first.batch_size);
  compare("--hidden", mine.hidden, first.hidden);
  compare("the number of training samples", mine.samples, first.samples);
  if (found.empty() && mine.data != first.data) {
    found = "the data or --auto-shard, although there are as many samples,";
  }
  compare("--seed", mine.seed, first.seed);
  compare("the number of steps", mine.steps, first.steps);
  compare("--log-every", mine.log_every, first.log_every);
  compare("--checkpoint-every", mine.checkpoint_every, first.checkpoint_every);
  compare("the learning rate", mine.learning_rate.text(), first.learning_rate.text());
  if (found.empty() && !(mine == first)) {
    found = "--batch-split, --timeline or --communication-data-type";
  }
  return found;
}

} // namespace

void check_same_plan(const RunPlan& plan, Communicator& communicator) {
  RunPlan first = plan;
  communicator.broadcast(std::as_writable_bytes(std::span(&first, 1)), 0, "plan");
  const std::string own = difference(plan, first);
  std::vector<float> differs(static_cast<std::size_t>(communicator.world_size()));
  differs[static_cast<std::size_t>(communicator.rank())] = own.empty() ? 0.0F : 1.0F;
  communicator.all_reduce(differs, "plans that differ");
  const auto other = std::find(differs.begin(), differs.end(), 1.0F);
  if (other == differs.end()) {
    return;
  }
  const auto rank = static_cast<int>(other - differs.begin());
  std::array<char, k_longest_difference> text{};
  own.copy(text.data(), text.size() - 1);
  communicator.broadcast(std::as_writable_bytes(std::span(text)), rank, "difference");
  text.back() = '\0';
  throw_on_all_ranks(
      communicator,
      fmt::format("{} and {} differ: {}; start all ranks with the same flags and data",
                  communicator.name(rank), communicator.name(0), text.data()));
}

void join_plan(RunPlan& plan, int source, Communicator& communicator) {
  RunPlan first = plan;
  communicator.broadcast(std::as_writable_bytes(std::span(&first, 1)), source, "plan");
  plan.steps = first.steps;
  plan.end = first.end;
  plan.learning_rate.whole = first.learning_rate.whole;
  if (const std::string other = difference(plan, first); !other.empty()) {
    throw UsageError(fmt::format("this rank and those that it would join differ: {}; start it with "
                                 "the same flags and data",
                                 other));
  }
}

} // namespace trainer
