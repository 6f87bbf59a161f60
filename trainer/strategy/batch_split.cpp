#include "trainer/strategy/batch_split.h"

#include <algorithm>
#include <numeric>

namespace trainer {
namespace {

constexpr std::int64_t k_first_period = 10; ///< Steps.
constexpr std::int64_t k_period = 50;
constexpr double k_worth_while = 1.03; ///< Shares stay where a step would not get that much faster.

/// Of the rank that takes longest, in the unit of 1 / speed.
double step_time(const std::vector<std::size_t>& rows, std::span<const double> speeds) {
  double longest = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    longest = std::max(longest, static_cast<double>(rows[i]) / speeds[i]);
  }
  return longest;
}

} // namespace

std::vector<std::size_t> rows_by_speed(std::size_t global_batch, std::span<const double> speeds) {
  const double sum = std::accumulate(speeds.begin(), speeds.end(), 0.0);
  const std::size_t spare = global_batch - speeds.size(); // Each has its one row already.
  std::vector<std::size_t> rows;
  std::vector<double> remainders;
  for (const double speed : speeds) {
    const double wanted = std::max(static_cast<double>(global_batch) * speed / sum - 1, 0.0);
    const auto whole = std::min(static_cast<std::size_t>(wanted), spare);
    rows.push_back(1 + whole);
    remainders.push_back(wanted - static_cast<double>(whole));
  }
  // What rounding left over goes to the largest remainders; what the minimum of one row took too
  // much comes from the smallest.
  std::vector<std::size_t> order(speeds.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return remainders[a] > remainders[b]; });
  std::size_t total = std::accumulate(rows.begin(), rows.end(), std::size_t{0});
  for (std::size_t i = 0; total < global_batch; i = (i + 1) % order.size(), ++total) {
    ++rows[order[i]];
  }
  while (total > global_batch) {
    --*std::max_element(rows.begin(), rows.end());
    --total;
  }
  return rows;
}

BatchSplit::BatchSplit(bool by_speed, std::size_t batch_size, Communicator& communicator)
    : by_speed_(by_speed && communicator.world_size() > 1),
      rank_(static_cast<std::size_t>(communicator.rank())), communicator_(communicator),
      rows_(static_cast<std::size_t>(communicator.world_size()), batch_size),
      speeds_(by_speed_ ? communicator.allocate(rows_.size()) : std::span<float>()),
      period_(k_first_period) {}

std::size_t BatchSplit::first() const {
  return std::accumulate(rows_.begin(), rows_.begin() + static_cast<std::ptrdiff_t>(rank_),
                         std::size_t{0});
}

bool BatchSplit::after_step(const WorkDone& done) {
  if (!by_speed_ || ++steps_ < period_) {
    return false;
  }
  const double seconds = std::max(done.seconds - before_.seconds, 1e-9);
  std::fill(speeds_.begin(), speeds_.end(), 0.0F);
  speeds_[rank_] = static_cast<float>(static_cast<double>(done.rows - before_.rows) / seconds);
  communicator_.all_reduce(speeds_, "speeds");
  const std::vector<double> speeds(speeds_.begin(), speeds_.end());
  before_ = done;
  steps_ = 0;
  period_ = k_period;

  const std::size_t global_batch = std::accumulate(rows_.begin(), rows_.end(), std::size_t{0});
  std::vector<std::size_t> rows = rows_by_speed(global_batch, speeds);
  if (step_time(rows_, speeds) < k_worth_while * step_time(rows, speeds)) {
    return false;
  }
  rows_ = std::move(rows);
  return true;
}

} // namespace trainer
