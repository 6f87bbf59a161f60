#include "backends/support/logs/log_reader.h"

#include "backends/support/logs/log_format.h"

#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <queue>

namespace dtrain {

namespace {

constexpr std::size_t k_block_bytes = 16384;

} // namespace

void LogReader::skip_to_tail(std::int64_t lines) {
  // Backwards, block by block, until one line more than wanted has its end in `tail`.
  const auto size = lseek(file_.get(), 0, SEEK_END);
  std::string tail;
  auto start = size;
  std::int64_t found = 0;
  auto end = std::string::npos; // Of the entry being looked at: its newline.
  while (true) {
    auto newline =
        end == 0 ? std::string::npos : tail.rfind('\n', end - (end == std::string::npos ? 0 : 1));
    if (newline == std::string::npos && start > 0) {
      const auto block = std::min<off_t>(start, k_block_bytes);
      start -= block;
      std::string more(static_cast<std::size_t>(block), '\0');
      const auto count = pread(file_.get(), more.data(), more.size(), start);
      if (count != block) {
        break;
      }
      if (end != std::string::npos) {
        end += more.size();
      }
      tail.insert(0, more);
      continue;
    }
    const auto begin = newline == std::string::npos ? 0 : newline + 1;
    if (end != std::string::npos) {
      const auto entry = parse_log_entry(std::string_view(tail).substr(begin, end - begin));
      if (entry && entry->complete && ++found > lines) {
        start += static_cast<off_t>(end) + 1;
        break;
      }
    }
    if (newline == std::string::npos) {
      break; // The whole file.
    }
    end = newline;
  }
  lseek(file_.get(), start, SEEK_SET);
}

bool LogReader::fill() {
  buffer_.erase(0, at_);
  at_ = 0;
  const auto size = buffer_.size();
  buffer_.resize(size + k_block_bytes);
  const auto count = read(file_.get(), buffer_.data() + size, k_block_bytes);
  buffer_.resize(size + static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
  return count > 0;
}

const LogLine* LogReader::peek() {
  std::size_t searched = 0;
  while (!has_line_) {
    const auto newline = buffer_.find('\n', at_ + searched);
    if (newline == std::string::npos) {
      searched = buffer_.size() - at_;
      if (!fill()) {
        return nullptr;
      }
      continue;
    }
    searched = 0;
    const auto entry = parse_log_entry(std::string_view(buffer_).substr(at_, newline - at_));
    at_ = newline + 1;
    if (entry) {
      line_ = *entry;
      line_.instance = instance_;
      has_line_ = true;
    }
  }
  return &line_;
}

void LogReader::next() { has_line_ = false; }

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
    if (!sink(*readers[index].peek())) {
      return false;
    }
    readers[index].next();
    push(index);
  }
  return true;
}

} // namespace dtrain
