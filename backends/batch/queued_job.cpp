#include "backends/batch/queued_job.h"

#include "backends/batch/split.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <utility>

namespace dtrain::batch {

std::vector<int> read_indexes(std::string_view text) {
  constexpr int k_most = 1'000'000;
  std::set<int> indexes;
  for (const auto each : split(text.substr(0, text.find('%')), ',')) {
    int first = 0;
    int step = 1;
    const char* const end = each.data() + each.size();
    auto at = std::from_chars(each.data(), end, first);
    int last = first;
    if (at.ec == std::errc() && at.ptr != end && *at.ptr == '-') {
      at = std::from_chars(at.ptr + 1, end, last);
      if (at.ec == std::errc() && at.ptr != end && *at.ptr == ':') {
        at = std::from_chars(at.ptr + 1, end, step);
      }
    }
    if (at.ec != std::errc() || at.ptr != end || first < 0 || last < first || last >= k_most ||
        step < 1) {
      return {};
    }
    for (int index = first; index <= last; index += std::min(step, k_most)) {
      indexes.insert(index);
    }
  }
  return {indexes.begin(), indexes.end()};
}

Queue::Queue(std::vector<QueuedJob> jobs) {
  for (QueuedJob& job : jobs) {
    const auto open = job.id.find("_[");
    if (open == std::string::npos) {
      jobs_.emplace(job.id, std::move(job));
      continue;
    }
    const auto list = std::string_view(job.id).substr(open + 2);
    for (const int index : read_indexes(list.substr(0, list.find(']')))) {
      jobs_.emplace(fmt::format("{}_{}", job.id.substr(0, open), index), job);
    }
  }
}

const QueuedJob* Queue::find(const std::string& id) const {
  auto found = jobs_.find(id);
  if (found == jobs_.end()) { // Tasks that never began may be told of as the array.
    found = jobs_.find(id.substr(0, id.find('_')));
  }
  return found == jobs_.end() ? nullptr : &found->second;
}

} // namespace dtrain::batch
