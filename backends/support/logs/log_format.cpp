#include "backends/support/logs/log_format.h"

#include "backends/support/logs/time_text.h"

namespace dtrain {

namespace {

constexpr std::string_view k_stdout = " stdout ";
constexpr std::string_view k_stderr = " stderr ";
constexpr std::size_t k_tag_at = k_time_text_size + k_stdout.size();
constexpr std::size_t k_text_at = k_tag_at + 2; // "F "
static_assert(k_stdout.size() == k_stderr.size());

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
  if (line.size() < k_text_at) {
    return std::nullopt;
  }
  const auto time = parse_time_text(line.substr(0, k_time_text_size));
  const auto stream = line.substr(k_time_text_size, k_stdout.size());
  const char tag = line[k_tag_at];
  if (!time || (stream != k_stdout && stream != k_stderr) || (tag != 'F' && tag != 'P') ||
      line[k_tag_at + 1] != ' ') {
    return std::nullopt;
  }
  LogLine entry;
  entry.time = *time;
  entry.is_stderr = stream == k_stderr;
  entry.complete = tag == 'F';
  entry.text = line.substr(k_text_at);
  return entry;
}

} // namespace dtrain
