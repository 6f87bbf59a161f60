#include "backends/kubernetes/logs/log_merge.h"

#include <algorithm>
#include <limits>
#include <queue>
#include <utility>
#include <vector>

namespace dtrain::kubernetes {
namespace {

constexpr std::chrono::milliseconds k_merge_idle{60'000};
constexpr Time k_far_behind = k_second;

} // namespace

void LogMerge::open(const std::string& key, const std::string& instance, Clock::time_point now) {
  Source& source = sources_[key];
  source.instance = instance;
  source.last_heard = now;
  source.is_open = true;
}

void LogMerge::close(const std::string& key) {
  auto found = sources_.find(key);
  if (found != sources_.end()) {
    found->second.is_open = false;
  }
}

std::size_t LogMerge::size_of(const Line& line) {
  static const std::size_t k_within = std::string().capacity();
  constexpr std::size_t k_block = 16; // Overhead of malloc.
  const std::size_t room = line.text.capacity();
  return sizeof line + (room > k_within ? room + k_block : 0);
}

void LogMerge::add(const std::string& key, Time time, std::string text, Clock::time_point now,
                   bool complete) {
  Source& source = sources_[key];
  source.lines.push_back({time, std::move(text), complete});
  held_ += size_of(source.lines.back());
  source.last_heard = now;
  source.last_time = time;
}

/// Whether a source without a line may still give one that is older than those of the others.
bool LogMerge::is_waited_for(const Source& source, Clock::time_point now) const {
  return source.is_open && now - source.last_heard < k_longest_silence &&
         (source.last_time == 0 || source.last_time + k_far_behind >= given_) &&
         (!source.holds_since || now - *source.holds_since < k_longest_hold);
}

bool LogMerge::give(bool everything, Clock::time_point now) {
  // A heap of the sources' oldest lines: each step costs the logarithm of their number. Lines later
  // than `until` wait: a source without one may still give an older.
  using Head = std::pair<Time, Source*>;
  std::priority_queue<Head, std::vector<Head>, std::greater<>> heads;
  Time until = std::numeric_limits<Time>::max();
  const auto enter = [&](Source& source) {
    if (!source.lines.empty()) {
      heads.emplace(source.lines.front().time, &source);
    } else if (is_waited_for(source, now)) {
      until = std::min(until, source.last_time);
    }
  };
  for (auto& [key, source] : sources_) {
    enter(source);
  }
  while (!heads.empty() && (everything || heads.top().first <= until || held_ > k_most_held)) {
    Source& source = *heads.top().second;
    heads.pop();
    held_ -= size_of(source.lines.front());
    const Line line = std::move(source.lines.front());
    source.lines.pop_front();
    given_ = std::max(given_, line.time);
    if (!sink_({line.time, source.instance, false, line.complete, line.text})) {
      return false;
    }
    enter(source);
  }
  for (auto& [key, source] : sources_) {
    if (heads.empty() || !source.lines.empty() || source.last_time >= heads.top().first) {
      source.holds_since.reset();
    } else if (!source.holds_since) {
      source.holds_since = now;
    }
  }
  return true;
}

bool LogMerge::flush(Clock::time_point now) {
  bool goes_on = give(false, now);
  std::erase_if(sources_, [](const auto& entry) {
    return !entry.second.is_open && entry.second.lines.empty();
  });
  return goes_on;
}

bool LogMerge::drain() { return give(true, Clock::now()); }

std::chrono::milliseconds LogMerge::next_flush(Clock::time_point now) const {
  bool holds = std::any_of(sources_.begin(), sources_.end(),
                           [](const auto& entry) { return !entry.second.lines.empty(); });
  if (!holds) {
    return k_merge_idle;
  }
  std::chrono::milliseconds wait{1};
  for (const auto& [key, source] : sources_) {
    if (source.is_open && source.lines.empty()) {
      auto left =
          std::chrono::ceil<std::chrono::milliseconds>(source.last_heard + k_longest_silence - now);
      wait = std::max(wait, left);
    }
  }
  return wait;
}

} // namespace dtrain::kubernetes
