#include "trainer/monitor/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "trainer/clock.h"
#include "trainer/errors.h"

namespace trainer {
namespace {

/// Values summed over ranks; the seconds a step of each rank follow them.
enum Sum : std::size_t {
  k_loss,
  k_correct,
  k_count,
  k_samples,
  k_input,
  k_waiting,
  k_under_way,
  k_exposed,
  k_metric_sums
};
constexpr double k_held_back =
    1.5; ///< A rank slower than this multiple of the median is a straggler.

} // namespace

Unlogged::Unlogged() : started(now()) {}

Metrics::Metrics(Communicator& communicator, Unlogged& unlogged)
    : communicator_(communicator), unlogged_(unlogged),
      sums_(k_metric_sums + static_cast<std::size_t>(communicator.world_size())) {}

void Metrics::add(const Score& score, std::size_t samples) {
  unlogged_.samples += samples;
  unlogged_.score.loss += score.loss;
  unlogged_.score.correct += score.correct;
  unlogged_.score.count += score.count;
  ++steps_;
}

std::optional<LogLine> Metrics::line(std::int64_t step, double epoch, const RankSeconds& seconds) {
  const double elapsed = now() - unlogged_.started;
  const auto put = [&](std::size_t at, double value) { sums_[at] = value; };
  std::fill(sums_.begin(), sums_.end(), 0.0);
  put(k_loss, unlogged_.score.loss);
  put(k_correct, static_cast<double>(unlogged_.score.correct));
  put(k_count, static_cast<double>(unlogged_.score.count));
  put(k_samples, static_cast<double>(unlogged_.samples));
  put(k_input, (seconds.input - before_.input) / elapsed);
  put(k_waiting, (seconds.waiting - before_.waiting) / elapsed);
  put(k_under_way, seconds.under_way - before_.under_way);
  put(k_exposed, seconds.exposed - before_.exposed);
  put(k_metric_sums + static_cast<std::size_t>(communicator_.rank()),
      (seconds.input + seconds.computing - before_.input - before_.computing) /
          static_cast<double>(std::max<std::int64_t>(steps_, 1)));
  communicator_.all_reduce(sums_, "metrics");

  const double count = sums_[k_count];
  if (count == 0) {
    return std::nullopt;
  }
  const double ranks = communicator_.world_size();
  LogLine line{.step = step,
               .epoch = epoch,
               .loss = sums_[k_loss] / count,
               .accuracy = sums_[k_correct] / count,
               .samples_per_second = sums_[k_samples] / elapsed,
               .input_bound = sums_[k_input] / ranks,
               .waiting = sums_[k_waiting] / ranks};
  if (communicator_.world_size() > 1 && sums_[k_under_way] > 0) {
    line.overlap = std::clamp(1.0 - sums_[k_exposed] / sums_[k_under_way], 0.0, 1.0);
  }
  std::vector<double> paces(sums_.begin() + k_metric_sums, sums_.end());
  const auto slowest = std::max_element(paces.begin(), paces.end());
  line.slowest = static_cast<int>(slowest - paces.begin());
  std::sort(paces.begin(), paces.end());
  line.slowest_seconds = paces.back();
  line.median_seconds = paces[(paces.size() - 1) / 2];
  line.fastest_seconds = paces.front();
  if (!std::isfinite(line.loss)) {
    throw Error(fmt::format("the loss became NaN or infinite at step {}; try a smaller "
                            "--learning-rate",
                            step));
  }
  unlogged_ = {};
  steps_ = 0;
  before_ = seconds;
  return line;
}

std::optional<int> StragglerWatch::look(const LogLine& line) {
  const bool is_slow = line.slowest_seconds > k_held_back * line.median_seconds;
  const bool again = is_slow && line.slowest == suspect_;
  suspect_ = is_slow ? line.slowest : -1;
  if (!again || std::find(named_.begin(), named_.end(), line.slowest) != named_.end()) {
    return std::nullopt;
  }
  named_.push_back(line.slowest);
  return line.slowest;
}

Score sum_over_ranks(const Score& score, Communicator& communicator) {
  // Float64 counts exactly, up to 2^53.
  std::array<double, 3> sums = {score.loss, static_cast<double>(score.correct),
                                static_cast<double>(score.count)};
  communicator.all_reduce(sums, "score");
  return {sums[0], std::llround(sums[1]), std::llround(sums[2])};
}

} // namespace trainer
