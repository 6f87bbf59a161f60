#include "cli/output/log_printer.h"

#include "cli/output/time.h"
#include "submit/errors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace dtrain {

LogPrinter::LogPrinter(Stream& out, const std::vector<std::string>& instances, Format format)
    : out_(out), format_(format) {
  static constexpr std::array<Style, 5> k_cycle = {Style::cyan, Style::yellow, Style::green,
                                                   Style::magenta, Style::blue};
  for (std::size_t i = 0; i < instances.size(); ++i) {
    width_ = std::max(width_, instances[i].size());
    styles_[instances[i]] = k_cycle[i % k_cycle.size()];
  }
}

std::string LogPrinter::prefix(std::string_view instance, Time time) const {
  std::string text;
  if (format_.prefix) {
    const auto style = styles_.find(instance);
    text = styled(out_.terminal(), style == styles_.end() ? Style::plain : style->second,
                  fmt::format("{:<{}} |", instance, width_)) +
           " ";
  }
  if (format_.timestamps) {
    text += utc_time(time) + " ";
  }
  return text;
}

void LogPrinter::print(const LogLine& line) {
  auto open = open_.find(line.instance);
  if (line.complete && open == open_.end()) {
    whole_line(line.instance, line.time, line.text);
    return;
  }
  if (open == open_.end()) {
    open = open_.emplace(std::string(line.instance), Open{line.time, {}}).first;
  }
  open->second.text += line.text;
  if (line.complete) {
    const Open ended = std::move(open->second);
    open_.erase(open);
    if (live_ == line.instance) {
      hide_live();
      live_.clear();
    }
    whole_line(line.instance, ended.time, ended.text);
    return;
  }
  if (!out_.terminal().is_terminal || !format_.flush_lines) {
    return;
  }
  if (live_.empty()) {
    live_ = line.instance;
  }
  if (live_ == line.instance) {
    hide_live();
    show_live();
    out_.flush();
  }
}

void LogPrinter::whole_line(std::string_view instance, Time time, std::string_view text) {
  hide_live();
  if (out_.terminal().is_terminal) {
    // What a carriage return has overwritten is gone from a screen.
    if (text.ends_with('\r')) {
      text.remove_suffix(1);
    }
    text.remove_prefix(text.rfind('\r') + 1);
  }
  out_.write(prefix(instance, time));
  out_.write(text);
  out_.write("\n");
  show_live();
  if (format_.flush_lines) {
    out_.flush();
  }
}

void LogPrinter::hide_live() {
  if (!live_.empty()) {
    out_.write("\r\x1b[K");
  }
}

void LogPrinter::show_live() {
  if (live_.empty()) {
    return;
  }
  const Open& open = open_.find(live_)->second;
  std::string_view text = open.text;
  if (text.ends_with('\r')) {
    text.remove_suffix(1);
  }
  text.remove_prefix(text.rfind('\r') + 1);
  // A line that wraps could not be taken back, so it is cut at the screen's edge.
  const std::size_t used = (format_.prefix ? width_ + std::string_view(" | ").size() : 0) +
                           (format_.timestamps ? utc_time(open.time).size() + 1 : 0);
  const auto room = static_cast<std::size_t>(out_.terminal().width) - 1;
  const std::string shown = printable(text);
  std::size_t end = std::min(shown.size(), room > used ? room - used : 0);
  while (end > 0 && end < shown.size() &&
         (static_cast<unsigned char>(shown[end]) & 0xC0U) == 0x80U) {
    --end;
  }
  out_.write(prefix(live_, open.time));
  out_.write(std::string_view(shown).substr(0, end));
}

void LogPrinter::finish() {
  if (!live_.empty()) {
    hide_live();
    live_.clear();
  }
  const auto rest = std::move(open_);
  open_.clear();
  for (const auto& [instance, open] : rest) {
    whole_line(instance, open.time, open.text);
  }
  out_.flush();
}

} // namespace dtrain
