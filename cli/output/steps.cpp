#include "cli/output/steps.h"

#include "submit/errors.h"
#include "submit/options/utf8.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

namespace dtrain {
namespace {

constexpr auto k_at_once = std::chrono::milliseconds(150); ///< Steps shorter than this have no bar.
constexpr std::size_t k_name_width = 8;
constexpr std::string_view k_clear_line = "\r\x1b[K";
constexpr std::size_t k_least_bar = 5;
constexpr std::size_t k_most_bar = 30;

std::string_view name_of(SubmitStep step) {
  switch (step) {
  case SubmitStep::check:
    return "check";
  case SubmitStep::upload:
    return "upload";
  case SubmitStep::copy:
    return "copy";
  case SubmitStep::create:
    return "create";
  }
  return "";
}

/// The text with its end cut off where it has more columns.
std::string cut(std::string_view text, std::size_t most) {
  if (utf8_columns(text) <= most) {
    return std::string(text);
  }
  std::size_t end = 0;
  for (std::size_t kept = 0; kept + 1 < most && end < text.size(); ++kept) {
    end += std::max<std::size_t>(decode_utf8(text.substr(end)).length, 1);
  }
  return most == 0 ? "" : std::string(text.substr(0, end)) + "…";
}

std::string bar(double share, std::size_t width) {
  const auto full =
      static_cast<std::size_t>(std::clamp(share, 0.0, 1.0) * static_cast<double>(width));
  std::string text;
  for (std::size_t i = 0; i < width; ++i) {
    text += i < full ? "━" : "╌";
  }
  return text;
}

bool can_move_cursor(const Terminal& terminal) {
  const char* term = std::getenv("TERM");
  return terminal.is_terminal && term != nullptr && std::string_view(term) != "dumb";
}

} // namespace

Steps::Steps(Stream& err, bool quiet, std::function<Clock::time_point()> now)
    : err_(err), quiet_(quiet), on_terminal_(can_move_cursor(err.terminal())),
      now_(std::move(now)) {}

void Steps::resolved(std::string_view text) { line("resolve", text, true); }

void Steps::tell(const SubmitProgress& progress) {
  const std::string_view name = name_of(progress.step);
  if (progress.done) {
    line(name, progress.text, true);
    current_ = {};
    return;
  }
  if (current_ != name) {
    current_ = name;
    begun_ = now_();
    drawn_ = drawn_ && on_terminal_;
  }
  if (now_() - begun_ >= k_at_once) {
    draw(progress);
  }
}

void Steps::fail() {
  if (on_terminal_ && !current_.empty()) {
    line(current_, "", false);
  }
  current_ = {};
}

void Steps::line(std::string_view name, std::string_view text, bool good) {
  if (quiet_) {
    return;
  }
  if (!on_terminal_) {
    if (drawn_ || name == name_of(SubmitStep::upload) || name == name_of(SubmitStep::copy)) {
      err_.write(fmt::format("{}: {}\n", name, printable(text)));
      err_.flush();
      drawn_ = false;
    }
    return;
  }
  const Terminal& terminal = err_.terminal();
  const auto width = static_cast<std::size_t>(terminal.width);
  const std::string row = fmt::format("{:<{}}  {}", name, k_name_width, printable(text));
  const auto end = row.find_last_not_of(' ') + 1;
  err_.write(
      fmt::format("{}{} {}\n", drawn_ ? k_clear_line : "",
                  good ? styled(terminal, Style::green, "✓") : styled(terminal, Style::red, "✗"),
                  cut(row.substr(0, end), width - std::min<std::size_t>(width, 3))));
  err_.flush();
  drawn_ = false;
}

void Steps::draw(const SubmitProgress& progress) {
  if (quiet_) {
    return;
  }
  if (!on_terminal_) {
    drawn_ = true; // It took long: a user who waited wants to know what for.
    return;
  }
  const auto width = static_cast<std::size_t>(err_.terminal().width);
  std::string row = fmt::format("  {:<{}}  ", current_, k_name_width);
  const std::size_t used = utf8_columns(row) + utf8_columns(progress.text) + 2;
  if (progress.bytes_total > 0 && used + k_least_bar < width) {
    row += bar(static_cast<double>(progress.bytes) / static_cast<double>(progress.bytes_total),
               std::min(k_most_bar, width - used - 1)) +
           "  ";
  }
  row += progress.text;
  err_.write(fmt::format("{}{}", k_clear_line, cut(row, width - std::min<std::size_t>(width, 1))));
  err_.flush();
  drawn_ = true;
}

} // namespace dtrain
