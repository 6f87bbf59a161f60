#include "trainer/monitor/metrics.h"

#include <fmt/format.h>

#include <cmath>

#include "trainer/clock.h"
#include "trainer/errors.h"

namespace trainer {
namespace {
constexpr std::size_t k_sums = 16;
}

Metrics::Metrics(Communicator& communicator)
    : communicator_(communicator), sums_(communicator.allocate(k_sums)), started_(now()) {}

void Metrics::add(const Score& score) {
  score_.loss += score.loss;
  score_.correct += score.correct;
  score_.count += score.count;
}

void Metrics::restart(double input_seconds) {
  started_ = now();
  input_before_ = input_seconds;
  waiting_before_ = communicator_.seconds_waiting();
}

LogLine Metrics::line(std::int64_t step, double epoch, double input_seconds) {
  const double elapsed = now() - started_;
  sums_[0] = static_cast<float>(score_.loss);
  sums_[1] = static_cast<float>(score_.correct);
  sums_[2] = static_cast<float>(score_.count);
  sums_[3] = static_cast<float>((input_seconds - input_before_) / elapsed);
  sums_[4] = static_cast<float>((communicator_.seconds_waiting() - waiting_before_) / elapsed);
  communicator_.all_reduce(sums_, "metrics");
  const double count = sums_[2];
  const double ranks = communicator_.world_size();
  LogLine line{step,
               epoch,
               sums_[0] / count,
               sums_[1] / count,
               count / elapsed,
               sums_[3] / ranks,
               sums_[4] / ranks};
  if (!std::isfinite(line.loss)) {
    throw Error(fmt::format("the loss is no number any more at step {}; try a smaller "
                            "--learning-rate",
                            step));
  }
  score_ = {};
  restart(input_seconds);
  return line;
}

Score sum_over_ranks(const Score& score, Communicator& communicator, std::span<float> registered) {
  registered[0] = static_cast<float>(score.loss);
  registered[1] = static_cast<float>(score.correct);
  registered[2] = static_cast<float>(score.count);
  communicator.all_reduce(registered, "score");
  return {registered[0], std::lround(registered[1]), std::lround(registered[2])};
}

} // namespace trainer
