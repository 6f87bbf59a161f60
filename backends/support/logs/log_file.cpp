#include "backends/support/logs/log_file.h"

#include "backends/support/logs/log_format.h"
#include "backends/support/os/files.h"

#include <fmt/format.h>
#include <unistd.h>

#include <fcntl.h>

#include <algorithm>
#include <cerrno>

namespace dtrain {

LogFile::LogFile(Fd file, std::int64_t limit) : file_(std::move(file)), limit_(limit) {
  const auto end = file_ ? lseek(file_.get(), 0, SEEK_END) : 0;
  size_ = whole_size_ = std::max<std::int64_t>(end, 0);
  const auto data = limit_ > 0 ? lseek(file_.get(), 0, SEEK_DATA) : 0;
  dropped_ = std::max<std::int64_t>(data, 0);
}

void LogFile::write(Stream stream, std::string_view bytes, Time now) {
  time_ = std::max(time_, now);
  auto& partial = partial_[static_cast<std::size_t>(stream)];
  for (auto newline = bytes.find('\n'); newline != std::string_view::npos;
       newline = bytes.find('\n')) {
    if (partial.empty()) {
      append(stream, true, bytes.substr(0, newline));
    } else {
      partial += bytes.substr(0, newline);
      append(stream, true, partial);
      partial.clear();
    }
    bytes.remove_prefix(newline + 1);
  }
  partial += bytes;
  if (partial.size() >= k_longest_part) {
    append(stream, false, partial);
    partial.clear();
  }
  flush(now);
}

void LogFile::flush_partial(Time now) {
  time_ = std::max(time_, now);
  for (const auto stream : {Stream::out, Stream::err}) {
    auto& partial = partial_[static_cast<std::size_t>(stream)];
    if (!partial.empty()) {
      append(stream, false, partial);
      partial.clear();
    }
  }
  flush(now);
}

void LogFile::finish(Time now) {
  time_ = std::max(time_, now);
  for (const auto stream : {Stream::out, Stream::err}) {
    const auto index = static_cast<std::size_t>(stream);
    if (!partial_[index].empty() || in_line_[index]) {
      append(stream, true, partial_[index]);
      partial_[index].clear();
    }
  }
  flush(now);
}

std::vector<std::string> LogFile::last_stderr() const {
  std::vector<std::string> lines(last_.begin(), last_.end());
  if (const auto& partial = partial_[static_cast<std::size_t>(Stream::err)]; !partial.empty()) {
    const auto part = partial.substr(0, k_longest_last_line);
    if (last_is_open_) {
      lines.back() += part;
    } else {
      lines.push_back(part);
    }
  }
  if (lines.size() > k_last_lines) {
    lines.erase(lines.begin());
  }
  return lines;
}

void LogFile::append(Stream stream, bool complete, std::string_view text) {
  const auto index = static_cast<std::size_t>(stream);
  if (skips_[index]) {
    skips_[index] = !complete;
  } else {
    append_log_entry(buffer_, time_, stream == Stream::err, complete, text);
    ++buffered_lines_;
    buffered_whole_ = complete ? buffer_.size() : buffered_whole_;
  }
  in_line_[index] = !complete;
  if (stream == Stream::err) {
    keep_last(text, complete);
  }
}

void LogFile::keep_last(std::string_view text, bool complete) {
  if (!last_is_open_) {
    last_.emplace_back();
  }
  auto& line = last_.back();
  line += text.substr(0, k_longest_last_line - std::min(k_longest_last_line, line.size()));
  last_is_open_ = !complete;
  if (last_.size() > k_last_lines) {
    last_.pop_front();
  }
}

void LogFile::flush(Time now) {
  if (buffer_.empty()) {
    return;
  }
  if (lost_lines_ > 0) {
    std::string note;
    append_log_entry(note, std::max(time_, now), true, true,
                     fmt::format("dtrain: {} log lines were lost here: {}", lost_lines_,
                                 errno_text(first_error_)));
    buffer_.insert(0, note);
    buffered_whole_ += note.size();
  }
  if (file_ && write_all(file_.get(), buffer_)) {
    if (buffered_whole_ > 0) {
      whole_size_ = size_ + static_cast<std::int64_t>(buffered_whole_);
    }
    size_ += static_cast<std::int64_t>(buffer_.size());
    lost_lines_ = 0;
  } else if (file_) {
    if (first_error_ == 0) {
      first_error_ = errno;
    }
    // Removes what a short write left of an entry, and the line that it belongs to; if that fails,
    // readers skip the entry.
    lost_lines_ += buffered_lines_ + (size_ > whole_size_ ? 1 : 0);
    const int ignored = ftruncate(file_.get(), whole_size_);
    static_cast<void>(ignored);
    size_ = whole_size_;
    skips_ = in_line_;
  }
  buffer_.clear();
  buffered_whole_ = 0;
  buffered_lines_ = 0;
  drop_oldest();
}

void LogFile::drop_oldest() {
  constexpr std::int64_t k_block = 4096;
  if (limit_ == 0 || size_ - dropped_ <= limit_) {
    return;
  }
  // Some more than must be, so that not every write has to.
  const auto end = (size_ - limit_ + limit_ / 8) / k_block * k_block;
  if (fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, end) == 0) {
    dropped_ = end;
    return;
  }
  limit_ = 0; // Reported only once.
  append(Stream::err, true,
         fmt::format("dtrain: this log grows beyond --log-limit: the file system cannot drop the "
                     "start of a file: {}",
                     errno_text()));
}

} // namespace dtrain
