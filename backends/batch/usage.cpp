#include "backends/batch/usage.h"

#include "backends/batch/split.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <string>
#include <utility>

namespace dtrain::batch {

std::vector<InstanceUsage> read_usage(std::string_view text,
                                      const std::vector<InstanceStatus>& instances) {
  std::map<std::string_view, std::pair<double, std::int64_t>> found;
  for (const auto line : split(text, '\n')) {
    const auto words = split(line, ' ');
    if (words.size() != 3) {
      continue;
    }
    auto& [cpus, memory] = found[words[0]];
    std::from_chars(words[1].data(), words[1].data() + words[1].size(), cpus);
    std::from_chars(words[2].data(), words[2].data() + words[2].size(), memory);
  }
  std::vector<InstanceUsage> usage;
  for (const InstanceStatus& each : instances) {
    if (const auto it = found.find(each.name); it != found.end()) {
      usage.push_back({.instance = each.name,
                       .node = each.node,
                       .cpus = it->second.first,
                       .memory = it->second.second,
                       .gpus = each.gpus});
    }
  }
  return usage;
}

std::vector<JobEvent> read_events(std::string_view text) {
  std::vector<JobEvent> events;
  std::string source;
  Time time = 0;
  bool begins = true;
  for (const auto line : split(text, '\n')) {
    if (line.empty()) {
      begins = true;
      continue;
    }
    if (std::exchange(begins, false)) {
      const auto space = std::min(line.rfind(' '), line.size());
      source = line.substr(0, space);
      std::int64_t seconds = 0;
      std::from_chars(line.data() + std::min(space + 1, line.size()), line.data() + line.size(),
                      seconds);
      time = seconds * k_second;
      continue;
    }
    const bool warns = line.find("error") != std::string_view::npos ||
                       line.find("warning") != std::string_view::npos;
    events.push_back({.source = source,
                      .type = warns ? "Warning" : "Normal",
                      .time = time,
                      .message = std::string(line)});
  }
  return events;
}

} // namespace dtrain::batch
