// A job's log from running totals over all its workers, as the servers send them along or the chief
// adds them up.
#pragma once

#include "trainer/clock.h"
#include "trainer/device/cpu/kernels.h"
#include "trainer/monitor/metrics.h"

namespace trainer {

class Journal {
 public:
  /// `epochs_a_step`: of all workers together; `scored`: of a sample, a text's masked tokens.
  explicit Journal(double epochs_a_step, std::size_t scored = 1)
      : epochs_a_step_(epochs_a_step), scored_(static_cast<double>(scored)) {}

  /// Since the line before; all but `step` and `totals` are sums of this process or of an average
  /// worker.
  LogLine line(std::int64_t step, const Score& totals, double input_seconds, double waiting) {
    const double seconds = now() - since_;
    const auto count = static_cast<double>(totals.count - before_.count);
    LogLine line;
    line.step = step;
    line.epoch = epochs_a_step_ * static_cast<double>(step);
    line.loss = (totals.loss - before_.loss) / count;
    line.accuracy = static_cast<double>(totals.correct - before_.correct) / count;
    line.samples_per_second = count / scored_ / seconds;
    line.input_bound = (input_seconds - input_before_) / seconds;
    line.waiting = (waiting - waiting_before_) / seconds;
    since_ = now();
    before_ = totals;
    input_before_ = input_seconds;
    waiting_before_ = waiting;
    return line;
  }

 private:
  double epochs_a_step_;
  double scored_;
  double since_ = now();
  Score before_;
  double input_before_ = 0;
  double waiting_before_ = 0;
};

} // namespace trainer
