#include "backends/support/logs/log_format.h"

#include "backends/support/logs/time_text.h"

namespace dtrain {

namespace {

constexpr std::string_view k_stdout = " stdout ";
constexpr std::string_view k_stderr = " stderr ";
constexpr std::size_t k_tag_at = k_time_text_size + k_stdout.size();
static_assert(k_stdout.size() == k_stderr.size());
static_assert(k_log_entry_head == k_tag_at + 2); // "F "

} // namespace

void append_log_entry(std::string& out, Time time, bool is_stderr, bool complete,
                      std::string_view text) {
  const auto at = out.size();
  out.resize(at + k_time_text_size);
  write_time_text(time, out.data() + at);
  out += is_stderr ? k_stderr : k_stdout;
  out += complete ? "F " : "P ";
  out += text;
  out += '\n';
}

std::optional<LogLine> parse_log_entry(std::string_view line) {
  return LogEntryParser().parse(line);
}

std::optional<LogLine> LogEntryParser::parse(std::string_view line) {
  if (line.size() < k_log_entry_head) {
    return std::nullopt;
  }
  const auto stream = line.substr(k_time_text_size, k_stdout.size());
  const char tag = line[k_tag_at];
  if ((stream != k_stdout && stream != k_stderr) || (tag != 'F' && tag != 'P') ||
      line[k_tag_at + 1] != ' ') {
    return std::nullopt;
  }
  constexpr std::size_t k_second_size = 20; // "2026-11-21T03:24:00."
  const auto text = line.substr(0, k_time_text_size);
  if (text != time_text_) { // Lines that came at once have one time.
    std::optional<Time> time;
    if (text.substr(0, k_second_size) == std::string_view(time_text_).substr(0, k_second_size)) {
      time = parse_fraction_text(text.substr(k_second_size));
      time = time ? std::optional(time_ - time_ % k_second + *time) : std::nullopt;
    } else {
      time = parse_time_text(text);
    }
    if (!time) {
      return std::nullopt;
    }
    time_ = *time;
    time_text_ = text;
  }
  LogLine entry;
  entry.time = time_;
  entry.is_stderr = stream == k_stderr;
  entry.complete = tag == 'F';
  entry.text = line.substr(k_log_entry_head);
  return entry;
}

} // namespace dtrain
