#include "backends/support/logs/log_reader.h"

#include "backends/support/progress.h"

#include <fmt/format.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <queue>

namespace dtrain {

namespace {

constexpr std::size_t k_block_bytes = 65536;

/// A longer run of bytes without a newline is not an entry of LogFile.
constexpr std::size_t k_longest_entry = std::size_t{1} << 20U;

} // namespace

LogReader::LogReader(Fd file, std::string instance)
    : file_(std::move(file)), instance_(std::move(instance)) {
  if (const auto dropped = begin(); dropped > 0) {
    note_ = fmt::format("dtrain: the first {} of this log were dropped (--log-limit)",
                        bytes_text(dropped));
    // The first bytes are the rest of an entry, unless it is complete.
    lseek(file_.get(), dropped - 1, SEEK_SET);
  }
}

/// Where the file's bytes begin, after those that were dropped.
off_t LogReader::begin() const {
  const auto data = lseek(file_.get(), 0, SEEK_DATA);
  lseek(file_.get(), 0, SEEK_SET);
  return std::max<off_t>(data, 0);
}

void LogReader::skip_to_tail(std::int64_t lines) {
  // Backwards, block by block, until one line more than wanted is complete. Only the head of an
  // entry matters, and it may continue in the following block.
  std::string block;
  std::string next_head; // Of the block that was read before.
  const auto first = this->begin();
  auto begin = lseek(file_.get(), 0, SEEK_END);
  auto entry_end = off_t{-1}; // The last newline found: of the entry that is being looked for.
  std::int64_t found = 0;
  const auto is_line = [&](std::string_view text, off_t entry_at) {
    const auto size = static_cast<std::size_t>(entry_end - entry_at);
    const auto entry = parse_log_entry(text.substr(0, std::min(size, k_log_entry_head)));
    return entry && entry->complete;
  };
  while (begin > first) {
    const auto size = static_cast<std::size_t>(std::min<off_t>(begin - first, k_block_bytes));
    begin -= static_cast<off_t>(size);
    block.resize(size);
    if (pread(file_.get(), block.data(), size, begin) != static_cast<ssize_t>(size)) {
      break;
    }
    block += next_head;
    for (auto newline = block.rfind('\n', size - 1); newline != std::string::npos;
         newline = newline == 0 ? std::string::npos : block.rfind('\n', newline - 1)) {
      const auto at = begin + static_cast<off_t>(newline);
      if (entry_end >= 0 && is_line(std::string_view(block).substr(newline + 1), at + 1) &&
          ++found > lines) {
        note_.clear(); // The requested lines are there.
        lseek(file_.get(), entry_end + 1, SEEK_SET);
        return;
      }
      entry_end = at;
    }
    next_head = block.substr(0, k_log_entry_head);
  }
  const bool first_too =
      begin == first && first == 0 && entry_end >= 0 && is_line(next_head, 0) && ++found > lines;
  lseek(file_.get(), first_too ? entry_end + 1 : std::max<off_t>(begin - 1, 0), SEEK_SET);
}

bool LogReader::fill() {
  if (at_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + at_, end_ - at_);
    end_ -= at_;
    at_ = 0;
  }
  if (buffer_.size() < end_ + k_block_bytes) {
    buffer_.resize(end_ + k_block_bytes);
  }
  const auto count = read(file_.get(), buffer_.data() + end_, buffer_.size() - end_);
  end_ += static_cast<std::size_t>(std::max<ssize_t>(count, 0));
  return count > 0;
}

const LogLine* LogReader::peek() {
  std::size_t searched = 0;
  while (!has_line_) {
    const char* const entry = buffer_.data() + at_;
    const auto size = end_ - at_;
    const void* const newline =
        size > searched ? std::memchr(entry + searched, '\n', size - searched) : nullptr;
    if (newline == nullptr) {
      searched = size;
      if (size > k_longest_entry) {
        skips_ = true;
        at_ = end_;
        searched = 0;
      }
      if (!fill()) {
        return nullptr;
      }
      continue;
    }
    searched = 0;
    const auto length = static_cast<std::size_t>(static_cast<const char*>(newline) - entry);
    at_ += length + 1;
    if (skips_) {
      skips_ = false;
    } else if (const auto parsed = parser_.parse({entry, length})) {
      line_ = *parsed;
      line_.instance = instance_;
      has_line_ = true;
      if (!note_.empty()) {
        at_ -= length + 1; // Read it again, after the note.
        line_.is_stderr = line_.complete = true;
        line_.text = note_;
      }
    }
  }
  return &line_;
}

void LogReader::next() {
  has_line_ = false;
  note_.clear();
}

bool merge_logs(std::deque<LogReader>& readers, Time since, Time horizon, const LogSink& sink,
                bool& held) {
  using Entry = std::pair<Time, std::size_t>; // Ties go to the lower rank.
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue;
  const auto push = [&](std::size_t index) {
    const auto* line = readers[index].peek();
    while (line != nullptr && line->time < since) {
      readers[index].next();
      line = readers[index].peek();
    }
    if (line == nullptr) {
      return;
    }
    if (line->time > horizon) {
      held = true;
    } else {
      queue.emplace(line->time, index);
    }
  };
  held = false;
  for (std::size_t i = 0; i < readers.size(); ++i) {
    push(i);
  }
  while (!queue.empty()) {
    const auto index = queue.top().second;
    queue.pop();
    // As long as it is the first: usually the next line comes from the same instance.
    const auto until = queue.empty() ? Entry{horizon, readers.size()} : queue.top();
    const auto* line = readers[index].peek();
    while (line != nullptr && Entry{line->time, index} < until) {
      if (!sink(*line)) {
        return false;
      }
      readers[index].next();
      line = readers[index].peek();
    }
    push(index);
  }
  return true;
}

} // namespace dtrain
