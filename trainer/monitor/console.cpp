#include "trainer/monitor/console.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "trainer/clock.h"

namespace trainer {
namespace {

constexpr double k_redraw_seconds = 0.1;
constexpr int k_bar_width = 30;

void print(const std::string& text) {
  fmt::print("{}\n", text);
  std::fflush(stdout);
}

} // namespace

std::string with_commas(double number) {
  std::string digits = fmt::format("{:.0f}", number);
  for (auto at = static_cast<int>(digits.size()) - 3; at > 0; at -= 3) {
    digits.insert(static_cast<std::size_t>(at), ",");
  }
  return digits;
}

Console::Console(bool quiet, bool progress_bar)
    : quiet_(quiet), bar_(!quiet && progress_bar && isatty(STDERR_FILENO) == 1) {}

Console::~Console() { clear_bar(); }

void Console::clear_bar() {
  if (drawn_) {
    std::fputs("\r\033[K", stderr);
    drawn_ = false;
  }
}

void Console::say(const std::string& text) {
  if (!quiet_) {
    clear_bar();
    print(text);
  }
}

void Console::choices(const std::vector<std::pair<std::string, std::string>>& choices) {
  std::size_t width = 0;
  for (const auto& [name, value] : choices) {
    width = std::max(width, name.size());
  }
  for (const auto& [name, value] : choices) {
    say(fmt::format("{:{}}  {}", name, width, value));
  }
}

std::string step_text(const LogLine& line, double epochs) {
  std::string text = fmt::format(
      "step {:>5}  epoch {:.2f}/{:g}  loss {:.4f}  accuracy {:.1f}%  {:>7} samples/s", line.step,
      line.epoch, epochs, line.loss, 100 * line.accuracy, with_commas(line.samples_per_second));
  // Names what costs the most time, if anything does.
  constexpr double k_much_input = 0.1;
  constexpr double k_much_waiting = 0.2;
  if (line.input_bound >= k_much_input && line.input_bound >= line.waiting) {
    text += fmt::format("  input {:.0f}%", 100 * line.input_bound);
  } else if (line.waiting >= k_much_waiting) {
    text += fmt::format("  waiting {:.0f}%", 100 * line.waiting);
  }
  return text;
}

void Console::line(const LogLine& line, double epochs) { say(step_text(line, epochs)); }

void Console::progress(std::int64_t step, std::int64_t steps, const char* what) {
  if (!bar_ || now() - drawn_at_ < k_redraw_seconds) {
    return;
  }
  drawn_at_ = now();
  drawn_ = true;
  const double share = steps > 0 ? static_cast<double>(step) / static_cast<double>(steps) : 0;
  const int filled = std::clamp(static_cast<int>(share * k_bar_width), 0, k_bar_width);
  fmt::print(stderr, "\r[{:=<{}}{: <{}}] {:3.0f} %  {} {}/{}\033[K", "", filled, "",
             k_bar_width - filled, 100 * share, what, step, steps);
  std::fflush(stderr);
}

} // namespace trainer
