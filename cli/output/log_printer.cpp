#include "cli/output/log_printer.h"

#include "cli/output/time.h"
#include "submit/errors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace dtrain {

namespace {

/// Longest line whose end has not come; a longer one is broken.
constexpr std::size_t k_longest_held = std::size_t{1} << 20U;

/// Text overwritten by a carriage return is gone from a screen.
std::string_view on_screen(std::string_view text) {
  if (text.ends_with('\r')) {
    text.remove_suffix(1);
  }
  text.remove_prefix(text.rfind('\r') + 1);
  return text;
}

} // namespace

LogPrinter::LogPrinter(Stream& out, const std::vector<std::string>& instances, Format format)
    : out_(out), format_(format),
      streams_parts_(instances.size() <= 1 && !out.terminal().is_terminal) {
  static constexpr std::array<Style, 5> k_cycle = {Style::cyan, Style::yellow, Style::green,
                                                   Style::magenta, Style::blue};
  for (const auto& instance : instances) {
    width_ = std::max(width_, instance.size());
  }
  for (std::size_t i = 0; i < instances.size(); ++i) {
    prefixes_[instances[i]] = instance_prefix(instances[i], k_cycle[i % k_cycle.size()]);
  }
}

std::string LogPrinter::instance_prefix(std::string_view instance, Style style) const {
  return format_.prefix
             ? styled(out_.terminal(), style, fmt::format("{:<{}} |", instance, width_)) + " "
             : "";
}

void LogPrinter::write_prefix(std::string_view instance, Time time) {
  if (format_.prefix) {
    auto found = prefixes_.find(instance);
    if (found == prefixes_.end()) { // The job was scaled.
      found = prefixes_.emplace(instance, instance_prefix(instance, Style::plain)).first;
    }
    out_.write(found->second);
  }
  if (format_.timestamps) {
    out_.write(utc_time(time));
    out_.write(" ");
  }
}

void LogPrinter::print(const LogLine& line) {
  if (streams_parts_) {
    print_part(line);
    return;
  }
  auto open = open_.empty() ? open_.end() : open_.find(line.instance);
  if (line.complete && open == open_.end()) {
    whole_line(line.instance, line.time, line.text);
    return;
  }
  if (open == open_.end()) {
    open = open_.emplace(std::string(line.instance), Open{line.time, {}}).first;
  }
  std::string& text = open->second.text;
  text += line.text;
  if (!line.complete && text.size() > k_longest_held && out_.terminal().is_terminal) {
    text.erase(0, text.size() - on_screen(text).size() - (text.ends_with('\r') ? 1 : 0));
  }
  if (line.complete || text.size() > k_longest_held) {
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

/// If no other output can mix with it, a line is written as its parts come.
void LogPrinter::print_part(const LogLine& line) {
  if (!in_line_) {
    write_prefix(line.instance, line.time);
  }
  out_.write(line.text);
  if (line.complete) {
    out_.write("\n");
  }
  in_line_ = !line.complete;
  if (format_.flush_lines) {
    out_.flush();
  }
}

void LogPrinter::whole_line(std::string_view instance, Time time, std::string_view text) {
  hide_live();
  write_prefix(instance, time);
  out_.write(out_.terminal().is_terminal ? on_screen(text) : text);
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
  // A line that wraps could not be taken back, so it is cut at the screen's edge.
  const std::size_t used = (format_.prefix ? width_ + std::string_view(" | ").size() : 0) +
                           (format_.timestamps ? utc_time(open.time).size() + 1 : 0);
  const auto room = static_cast<std::size_t>(out_.terminal().width) - 1;
  constexpr std::size_t k_longest_character = 4;
  const std::string shown = printable(on_screen(open.text).substr(0, room * k_longest_character));
  std::size_t end = std::min(shown.size(), room > used ? room - used : 0);
  while (end > 0 && end < shown.size() &&
         (static_cast<unsigned char>(shown[end]) & 0xC0U) == 0x80U) {
    --end;
  }
  write_prefix(live_, open.time);
  out_.write(std::string_view(shown).substr(0, end));
}

void LogPrinter::finish() {
  if (in_line_) {
    out_.write("\n");
    in_line_ = false;
  }
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
