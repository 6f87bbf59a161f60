// The destinations of a run's figures: console, TensorBoard and CSV, on rank 0 only. The other
// ranks have a quiet console and nothing else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainer/monitor/console.h"
#include "trainer/monitor/csv.h"
#include "trainer/monitor/metrics.h"
#include "trainer/monitor/tensorboard.h"

namespace trainer {

struct OutputOptions {
  bool progress_bar = true;
  std::string logdir; ///< Folder of TensorBoard; empty: none.
  std::string csv;    ///< Empty: none.
  double epochs = 1;  ///< Of the whole run.
};

class Outputs {
 public:
  /// `last_step`: that this rank knows to have a line.
  Outputs(const OutputOptions& options, bool first_rank, std::int64_t last_step = -1);

  void choices(const std::vector<std::pair<std::string, std::string>>& choices);
  void say(const std::string& text) { console_.say(text); }
  void progress(std::int64_t step, std::int64_t steps) { console_.progress(step, steps); }
  /// A run continues after `step`: existing data of later steps is from steps that are done again.
  void resume_after(std::int64_t step);
  void line(const LogLine& line);
  /// The same, unless the CSV file, if there is one, has a line for the step.
  void line_once(const LogLine& line);
  /// `name`: of the slowest rank.
  void straggler(const std::string& name, const LogLine& line, bool split_by_speed);
  void new_shares(const std::vector<std::size_t>& rows, std::size_t global_rows);
  /// `of`: what was scored.
  void held_out(const Score& score, std::int64_t step, const char* of);
  std::int64_t last_step() const { return last_step_; }

 private:
  double epochs_;
  std::int64_t last_step_;
  Console console_;
  std::unique_ptr<TensorBoard> board_;
  std::unique_ptr<CsvLog> csv_;
};

} // namespace trainer
