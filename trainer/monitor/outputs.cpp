#include "trainer/monitor/outputs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>

namespace trainer {

Outputs::Outputs(const OutputOptions& options, bool first_rank, std::int64_t last_step)
    : epochs_(options.epochs), last_step_(last_step), console_(!first_rank, options.progress_bar) {
  if (first_rank && !options.logdir.empty()) {
    board_ = std::make_unique<TensorBoard>(options.logdir);
  }
  if (first_rank && !options.csv.empty()) {
    csv_ = std::make_unique<CsvLog>(options.csv);
  }
}

void Outputs::choices(const std::vector<std::pair<std::string, std::string>>& choices) {
  console_.choices(choices);
}

void Outputs::resume_after(std::int64_t step) {
  if (csv_) {
    csv_->forget_after(step);
  }
  if (board_) {
    board_->forget_after(step);
  }
}

void Outputs::line_once(const LogLine& line) {
  std::optional<CsvLog::Lock> lock;
  if (csv_) {
    lock.emplace(*csv_);
  }
  if ((csv_ ? csv_->last_step() : last_step_) < line.step) {
    this->line(line);
  }
}

void Outputs::line(const LogLine& line) {
  last_step_ = line.step;
  console_.line(line, epochs_);
  if (csv_) {
    csv_->line(line);
  }
  if (board_) {
    std::vector<std::pair<std::string, double>> scalars = {
        {"train/loss", line.loss},
        {"train/accuracy", line.accuracy},
        {"train/epoch", line.epoch},
        {"train/samples_per_second", line.samples_per_second},
        {"train/input_bound", line.input_bound},
        {"train/waiting", line.waiting}};
    const std::pair<const char*, std::optional<double>> some[] = {
        {"train/overlap", line.overlap},
        {"train/learning_rate", line.learning_rate},
        {"train/loss_scale", line.loss_scale}};
    for (const auto& [name, value] : some) {
      if (value) {
        scalars.emplace_back(name, *value);
      }
    }
    board_->scalars(line.step, scalars);
  }
}

void Outputs::straggler(const std::string& name, const LogLine& line, bool split_by_speed) {
  constexpr double k_milliseconds = 1e3;
  say(fmt::format(
      "{} is slow: {:.2f} ms per step before the all-reduce, median {:.2f}, fastest {:.2f}{}", name,
      k_milliseconds * line.slowest_seconds, k_milliseconds * line.median_seconds,
      k_milliseconds * line.fastest_seconds,
      split_by_speed ? "" : "; --batch-split=speed would give it fewer samples"));
}

void Outputs::new_shares(const std::vector<std::size_t>& rows, std::size_t global_rows) {
  say(fmt::format("shares of the {} samples of a step, by speed: {}", global_rows,
                  fmt::join(rows, ", ")));
}

void Outputs::held_out(const Score& score, std::int64_t step, const char* of) {
  if (score.count == 0) {
    say(fmt::format("held-out accuracy: not measured, no {} are held out", of));
    return;
  }
  const auto count = static_cast<double>(score.count);
  const double accuracy = static_cast<double>(score.correct) / count;
  say(fmt::format("held-out accuracy {:.2f} %  loss {:.4f}  ({} {})", 100 * accuracy,
                  score.loss / count, with_commas(count), of));
  if (board_) {
    board_->scalars(step, {{"test/loss", score.loss / count}, {"test/accuracy", accuracy}});
  }
}

} // namespace trainer
