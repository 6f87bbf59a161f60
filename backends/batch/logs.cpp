#include "backends/batch/logs.h"

#include "backends/batch/job_files.h"
#include "backends/batch/split.h"
#include "backends/support/logs/time_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <queue>
#include <thread>
#include <utility>

namespace dtrain::batch {
namespace {

constexpr std::int64_t k_least_piece = 64 << 10;
constexpr std::int64_t k_largest_piece = 1 << 20;
constexpr std::int64_t k_all_pieces = 64 << 20; ///< Memory for all files together.
constexpr std::chrono::milliseconds k_pause{200};
/// Between two looks at the state of the job.
constexpr std::chrono::milliseconds k_between_looks{500};

/// The lengths of a rank's files at some time.
struct Mark {
  Time time = 0;
  std::array<std::int64_t, 2> sizes{}; ///< Of stdout and stderr.
};

std::vector<Mark> read_marks(std::string_view text) {
  std::vector<Mark> marks;
  for (const auto line : split(text, '\n')) {
    Mark mark;
    const char* const end = line.data() + line.size();
    auto at = std::from_chars(line.data(), end, mark.time);
    for (auto& size : mark.sizes) {
      if (at.ec == std::errc() && at.ptr != end) {
        at = std::from_chars(at.ptr + 1, end, size);
      }
    }
    if (!line.empty() && at.ec == std::errc() && at.ptr == end) {
      marks.push_back(mark);
    }
  }
  return marks;
}

/// A rank, of whose run `run` the files are read.
struct Source {
  std::string instance; ///< "7/worker-0"
  int run = 0;
  std::vector<Mark> marks = {};
  std::int64_t left_out = 0; ///< Lines before the last that were asked for.

  std::string folder(int number) const {
    return fmt::format("{}{}", task_prefix(instance), number);
  }
  std::string file(std::string_view kind) const {
    return fmt::format("{}/{}.{}", folder(run), instance.substr(task_prefix(instance).size()),
                       kind);
  }
};

/// One of a rank's two files, read line by line, with one piece in memory.
class Text {
 public:
  Text(std::string name, bool is_stderr) : name_(std::move(name)), is_stderr_(is_stderr) {}

  const std::string& name() const { return name_; }
  bool is_stderr() const { return is_stderr_; }
  void grow(const JobFiles::State& state) {
    size_ = std::max(size_, state.size);
    written_ = state.written;
  }
  std::int64_t size() const { return size_; }
  Time written() const { return written_; }

  /// `offset`: of a line's beginning.
  void start_at(std::int64_t offset) { begin_ = offset; }

  /// The piece that it reads next.
  JobFiles::Piece next_piece(std::int64_t most) const {
    const auto from = begin_ + static_cast<std::int64_t>(buffer_.size());
    return {name_, from, std::min(most, size_ - from)};
  }
  void take(const std::string& bytes) { buffer_ += bytes; }

  /// True where there is a next line, which is `line` then. Of one that is longer than `most` a
  /// part is. `is_whole`: what follows the last newline is a line too.
  bool next(JobFiles& files, std::int64_t most, bool is_whole) {
    if (has_line_) {
      return true;
    }
    auto searched = at_;
    while (true) {
      const auto newline = buffer_.find('\n', searched);
      const auto left = buffer_.size() - at_;
      if (newline != std::string::npos) {
        set_line(newline, true);
        return true;
      }
      const auto piece = next_piece(most);
      if (left >= static_cast<std::size_t>(most) || (piece.size <= 0 && is_whole && left > 0)) {
        set_line(buffer_.size(), piece.size <= 0);
        return true;
      }
      if (piece.size <= 0) {
        return false;
      }
      buffer_.erase(0, at_);
      begin_ += static_cast<std::int64_t>(std::exchange(at_, 0));
      searched = buffer_.size();
      take(files.read({piece}).front());
    }
  }

  /// The next line's, valid until it is passed.
  std::string_view line() const { return std::string_view(buffer_).substr(at_, line_end_ - at_); }
  bool is_complete() const { return is_complete_; }

  /// When it had been printed: by the marks, which are in order, as files are read; after all of
  /// them, when the file was last written to.
  Time time(const std::vector<Mark>& marks) {
    const auto end = begin_ + static_cast<std::int64_t>(line_end_);
    while (mark_ < marks.size() && marks[mark_].sizes[is_stderr_ ? 1 : 0] < end) {
      ++mark_;
    }
    return mark_ < marks.size() ? marks[mark_].time : written_;
  }

  void pass() {
    at_ = std::min(line_end_ + (is_complete_ ? 1 : 0), buffer_.size());
    has_line_ = false;
  }

 private:
  void set_line(std::size_t end, bool is_complete) {
    line_end_ = end;
    is_complete_ = is_complete;
    has_line_ = true;
  }

  std::string name_;
  bool is_stderr_;
  std::int64_t size_ = 0;
  Time written_ = 0;
  std::string buffer_;
  std::int64_t begin_ = 0; ///< Offset of the buffer in the file.
  std::size_t at_ = 0;     ///< Offset in the buffer of what has not been passed.
  std::size_t line_end_ = 0;
  std::size_t mark_ = 0;
  bool is_complete_ = true;
  bool has_line_ = false;
};

struct Tail {
  std::int64_t begin = 0;
  std::int64_t lines = 0;
};

/// Where the last `count` lines of a file of that size begin, or all lines if there are fewer.
Tail find_tail(JobFiles& files, const Text& text, std::int64_t count) {
  if (count == 0) {
    return {text.size(), 0};
  }
  std::int64_t found = 0;
  for (auto at = text.size(); at > 0;) {
    const auto size = std::min(at, k_least_piece);
    const std::string block = files.read({{text.name(), at - size, size}}).front();
    at -= size;
    for (auto i = block.rfind('\n'); i != std::string::npos;
         i = i == 0 ? std::string::npos : block.rfind('\n', i - 1)) {
      const auto next = at + static_cast<std::int64_t>(i) + 1;
      if (next != text.size() && ++found == count) {
        return {next, count};
      }
    }
  }
  return {0, text.size() > 0 ? found + 1 : 0};
}

/// Reads the logs of some ranks.
class Printer {
 public:
  Printer(const Login& login, const std::string& folder, std::vector<Source> sources,
          const LogQuery& query, const LogSink& sink)
      : files_(login, folder), sources_(std::move(sources)), query_(query), sink_(sink) {
    for (const Source& source : sources_) {
      texts_.emplace_back(source.file("out"), false);
      texts_.emplace_back(source.file("err"), true);
    }
    most_ = std::clamp(k_all_pieces / std::max<std::int64_t>(std::ssize(texts_), 1), k_least_piece,
                       k_largest_piece);
  }

  /// Prints what is there, ordered by time. Returns false if the sink wants no more.
  bool print();

  /// Prints what is added, and the output of later runs.
  void follow(const std::function<JobStatus()>& status);

 private:
  void measure();
  void read_all_marks();
  void skip_to_tails();
  bool give(std::size_t index, Time time);
  bool give_new(std::size_t index, bool is_whole);
  bool follow_once(bool& is_quiet);

  Source& source_of(std::size_t text) { return sources_[text / 2]; }

  JobFiles files_;
  std::vector<Source> sources_;
  std::vector<Text> texts_; ///< Two of each source's.
  const LogQuery& query_;
  const LogSink& sink_;
  std::int64_t most_ = 0; ///< Memory for one file.
  std::string why_;       ///< Why nothing runs yet, as last reported.
};

void Printer::measure() {
  std::vector<std::string> names;
  for (const Text& text : texts_) {
    names.push_back(text.name());
  }
  const auto states = files_.look(names);
  for (std::size_t i = 0; i < texts_.size(); ++i) {
    texts_[i].grow(states[i]);
  }
}

void Printer::read_all_marks() {
  std::vector<std::string> names;
  for (const Source& source : sources_) {
    names.push_back(source.file("times"));
  }
  const auto states = files_.look(names);
  constexpr std::size_t k_at_a_time = 64;
  for (std::size_t begin = 0; begin < names.size(); begin += k_at_a_time) {
    std::vector<JobFiles::Piece> pieces;
    for (auto i = begin; i < std::min(begin + k_at_a_time, names.size()); ++i) {
      pieces.push_back({names[i], 0, states[i].size});
    }
    const auto read = files_.read(pieces);
    for (std::size_t i = 0; i < read.size(); ++i) {
      sources_[begin + i].marks = read_marks(read[i]);
    }
  }
}

/// Keeps the last lines of both files of a rank, which may be too many: those are dropped when
/// their times are known.
void Printer::skip_to_tails() {
  for (std::size_t i = 0; i < texts_.size(); ++i) {
    const Tail tail = find_tail(files_, texts_[i], query_.tail);
    texts_[i].start_at(tail.begin);
    source_of(i).left_out += tail.lines;
  }
  for (Source& source : sources_) {
    source.left_out = std::max<std::int64_t>(source.left_out - query_.tail, 0);
  }
}

bool Printer::give(std::size_t index, Time time) {
  Text& text = texts_[index];
  Source& source = source_of(index);
  bool goes_on = true;
  if (source.left_out > 0) {
    source.left_out -= text.is_complete() ? 1 : 0;
  } else if (time >= query_.since) {
    goes_on = sink_({.time = time,
                     .instance = source.instance,
                     .is_stderr = text.is_stderr(),
                     .complete = text.is_complete(),
                     .text = text.line()});
  }
  text.pass();
  return goes_on;
}

bool Printer::print() {
  measure();
  read_all_marks();
  if (query_.tail >= 0) {
    skip_to_tails();
  }
  std::vector<JobFiles::Piece> pieces;
  for (const Text& text : texts_) {
    pieces.push_back(text.next_piece(most_));
  }
  auto first = files_.read(pieces);
  using Entry = std::pair<Time, std::size_t>; // Lines of the same time are in the order of ranks.
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue;
  const auto push = [&](std::size_t index) {
    if (texts_[index].next(files_, most_, !query_.follow)) {
      queue.emplace(texts_[index].time(source_of(index).marks), index);
    }
  };
  for (std::size_t i = 0; i < texts_.size(); ++i) {
    texts_[i].take(first[i]);
    push(i);
  }
  const Time now = time_now();
  while (!queue.empty()) {
    const auto [time, index] = queue.top();
    queue.pop();
    if (!give(index, std::min(time, now))) {
      return false;
    }
    push(index);
  }
  return true;
}

/// False: the sink wants no more.
bool Printer::give_new(std::size_t index, bool is_whole) {
  while (texts_[index].next(files_, most_, is_whole)) {
    // As far as times are known: text that appeared between two looks was printed by the later one.
    if (!give(index, texts_[index].written())) {
      return false;
    }
  }
  return true;
}

bool Printer::follow_once(bool& is_quiet) {
  // If there is a next run (asked first), nothing more is printed in this one.
  std::vector<std::string> names;
  for (const Source& source : sources_) {
    names.push_back(source.folder(source.run + 1));
  }
  for (const Text& text : texts_) {
    names.push_back(text.name());
  }
  const auto states = files_.look(names);
  for (std::size_t i = 0; i < texts_.size(); ++i) {
    Source& source = source_of(i);
    Text& text = texts_[i];
    const bool is_over = states[i / 2].size >= 0;
    const JobFiles::State& state = states[sources_.size() + i];
    is_quiet = is_quiet && !is_over && state.size <= text.size();
    text.grow(state);
    if (!give_new(i, is_over)) {
      return false;
    }
    if (is_over && text.is_stderr()) {
      ++source.run;
      texts_[i - 1] = Text(source.file("out"), false);
      texts_[i] = Text(source.file("err"), true);
    }
  }
  return true;
}

void Printer::follow(const std::function<JobStatus()>& status) {
  bool has_ended = false;
  auto next_look = std::chrono::steady_clock::now();
  while (true) {
    bool is_quiet = true;
    if (!follow_once(is_quiet)) {
      return;
    }
    if (has_ended && is_quiet) {
      break;
    }
    if (!has_ended && std::chrono::steady_clock::now() >= next_look) {
      const JobStatus now = status();
      has_ended = is_final(now.phase);
      if (query_.on_wait && now.phase != Phase::running && !has_ended && now.reason != why_) {
        query_.on_wait(now.reason);
      }
      why_ = now.reason;
      next_look = std::chrono::steady_clock::now() + k_between_looks;
    } else if (is_quiet) {
      std::this_thread::sleep_for(k_pause);
    }
  }
  for (std::size_t i = 0; i < texts_.size() && give_new(i, true); ++i) {
  }
}

} // namespace

void print_logs(const Login& login, const std::string& folder, const JobRecord& record,
                const LogQuery& query, const LogSink& sink,
                const std::function<JobStatus()>& status) {
  std::vector<Source> sources;
  for (const std::string& instance : record.instance_names()) {
    if (query.instance.empty() || query.instance == instance) {
      const int run = std::max(record.part_of(instance).run.number, 0);
      sources.push_back({instance, query.previous ? run - 1 : run});
    }
  }
  Printer printer(login, folder, std::move(sources), query, sink);
  if (printer.print() && query.follow) {
    printer.follow(status);
  }
}

} // namespace dtrain::batch
