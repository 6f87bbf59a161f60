#include "backends/slurm/logs.h"

#include "backends/support/logs/time_text.h"
#include "submit/template/render.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <deque>
#include <limits>
#include <map>

namespace dtrain::slurm {
namespace {

std::string script() { return std::string(builtin_template("slurm/commands/logs.sh").text); }

/// Reads "NAME SIZE" lines, each with that many bytes behind it, from a program's stdout.
class Frames {
 public:
  explicit Frames(Subprocess& program) : program_(program) {}

  /// False at the end. An empty name: an empty line.
  bool next(std::string& name, std::string& bytes) {
    std::string line;
    if (!read_line(line)) {
      return false;
    }
    const auto space = line.rfind(' ');
    name = line.substr(0, space);
    bytes.clear();
    if (space == std::string::npos) {
      return true;
    }
    std::size_t size = 0;
    std::from_chars(line.data() + space + 1, line.data() + line.size(), size);
    while (buffer_.size() < size && fill()) {
    }
    bytes = buffer_.substr(0, size);
    buffer_.erase(0, size);
    return true;
  }

 private:
  bool fill() {
    const auto some = program_.read_some();
    buffer_ += some;
    return !some.empty();
  }

  bool read_line(std::string& line) {
    std::size_t end = 0;
    while ((end = buffer_.find('\n')) == std::string::npos) {
      if (!fill()) {
        return false;
      }
    }
    line = buffer_.substr(0, end);
    buffer_.erase(0, end + 1);
    return true;
  }

  Subprocess& program_;
  std::string buffer_;
};

/// "worker-0.out"
struct FileName {
  std::string instance;
  std::string kind;
};

FileName parse_name(const std::string& name) {
  const auto dot = name.rfind('.');
  return {name.substr(0, dot), name.substr(dot + 1)};
}

struct StoredLine {
  Time time = 0;
  const std::string* instance = nullptr;
  bool is_stderr = false;
  bool complete = true;
  std::string_view text;
};

/// How much both files held at a time.
struct Mark {
  Time time = 0;
  std::size_t out = 0;
  std::size_t err = 0;
};

std::vector<Mark> read_marks(std::string_view text) {
  std::vector<Mark> marks;
  while (!text.empty()) {
    const auto line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    Mark mark;
    const char* end = line.data() + line.size();
    auto at = std::from_chars(line.data(), end, mark.time).ptr;
    at = at < end ? std::from_chars(at + 1, end, mark.out).ptr : at;
    if (at < end && std::from_chars(at + 1, end, mark.err).ec == std::errc()) {
      marks.push_back(mark);
    }
  }
  return marks;
}

void add_lines(std::string_view text, bool is_stderr, const std::string& instance,
               const std::vector<Mark>& marks, std::vector<StoredLine>& lines) {
  auto mark = marks.begin();
  for (std::size_t at = 0; at < text.size();) {
    const auto end = std::min(text.find('\n', at), text.size());
    while (mark != marks.end() && (is_stderr ? mark->err : mark->out) < end) {
      ++mark;
    }
    lines.push_back({.time = mark == marks.end() ? std::numeric_limits<Time>::max() : mark->time,
                     .instance = &instance,
                     .is_stderr = is_stderr,
                     .complete = true,
                     .text = text.substr(at, end - at)});
    at = end + 1;
  }
}

/// Of a text, the bytes of its last lines.
std::string_view last_lines(std::string_view text, std::int64_t count) {
  std::size_t at = text.ends_with('\n') ? text.size() - 1 : text.size();
  for (; count > 0 && at != std::string_view::npos; --count) {
    at = at == 0 ? std::string_view::npos : text.rfind('\n', at - 1);
  }
  return at == std::string_view::npos ? text : text.substr(std::min(at + 1, text.size()));
}

} // namespace

void print_logs(const Login& login, const std::string& folder,
                const std::vector<std::string>& instances, const LogQuery& query,
                const LogSink& sink) {
  std::vector<std::string> args{folder, "once"};
  args.insert(args.end(), instances.begin(), instances.end());
  Subprocess program(login.command(script(), args));
  Frames frames(program);
  std::map<std::string, std::map<std::string, std::string>> files;
  std::string name;
  std::string bytes;
  while (frames.next(name, bytes)) {
    const FileName file = parse_name(name);
    files[file.instance][file.kind] = bytes;
  }
  std::vector<StoredLine> lines;
  for (auto& [instance, texts] : files) {
    const auto marks = read_marks(texts["times"]);
    std::vector<StoredLine> own;
    add_lines(texts["out"], false, instance, marks, own);
    add_lines(texts["err"], true, instance, marks, own);
    std::stable_sort(own.begin(), own.end(),
                     [](const auto& a, const auto& b) { return a.time < b.time; });
    const auto most = static_cast<std::size_t>(std::max<std::int64_t>(query.tail, 0));
    if (query.tail >= 0 && own.size() > most) {
      own.erase(own.begin(), own.end() - static_cast<std::ptrdiff_t>(most));
    }
    lines.insert(lines.end(), own.begin(), own.end());
  }
  std::stable_sort(lines.begin(), lines.end(),
                   [](const auto& a, const auto& b) { return a.time < b.time; });
  const Time now = time_now();
  for (const StoredLine& line : lines) {
    const Time time = std::min(line.time, now);
    if (time >= query.since && !sink({.time = time,
                                      .instance = *line.instance,
                                      .is_stderr = line.is_stderr,
                                      .complete = line.complete,
                                      .text = line.text})) {
      return;
    }
  }
}

void follow_logs(const Login& login, const std::string& folder,
                 const std::vector<std::string>& instances, const LogQuery& query,
                 const LogSink& sink, const std::function<JobStatus()>& status) {
  std::vector<std::string> args{folder, "follow"};
  args.insert(args.end(), instances.begin(), instances.end());
  Subprocess program(login.command(script(), args));
  Frames frames(program);
  std::map<std::string, std::string> rests; ///< Of each file, what has no newline yet.
  const auto give = [&](const FileName& file, std::string_view text) {
    return sink({.time = time_now(),
                 .instance = file.instance,
                 .is_stderr = file.kind == "err",
                 .text = text});
  };
  bool is_first = true;
  bool has_ended = false;
  bool is_quiet = true;
  auto next_look = std::chrono::steady_clock::now();
  std::string name;
  std::string bytes;
  while (frames.next(name, bytes)) {
    if (name.empty()) { // A round through all files is over.
      is_first = false;
      if (has_ended && is_quiet) {
        break;
      }
      is_quiet = true;
      if (!has_ended && std::chrono::steady_clock::now() >= next_look) {
        const JobStatus now = status();
        has_ended = is_final(now.phase);
        if (query.on_wait && now.phase != Phase::running && !has_ended) {
          query.on_wait(now.reason);
        }
        next_look = std::chrono::steady_clock::now() + std::chrono::milliseconds(500);
      }
      continue;
    }
    is_quiet = false;
    const FileName file = parse_name(name);
    std::string& rest = rests[name];
    rest += bytes;
    std::string_view text = rest;
    if (is_first && query.tail >= 0) {
      text = last_lines(text, query.tail);
    }
    for (auto end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
      if (!give(file, text.substr(0, end))) {
        return;
      }
      text.remove_prefix(end + 1);
    }
    rest = std::string(text);
  }
  for (const auto& [file, rest] : rests) {
    if (!rest.empty() && !give(parse_name(file), rest)) {
      return;
    }
  }
}

} // namespace dtrain::slurm
