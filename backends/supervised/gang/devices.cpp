#include "backends/supervised/gang/devices.h"

#include "submit/errors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>

namespace dtrain {

std::vector<std::string> visible_gpus(std::string_view variable) {
  std::vector<std::string> names;
  while (!variable.empty()) {
    const auto comma = std::min(variable.find(','), variable.size());
    auto name = variable.substr(0, comma);
    variable.remove_prefix(std::min(comma + 1, variable.size()));
    name.remove_prefix(std::min(name.find_first_not_of(' '), name.size()));
    name = name.substr(0, name.find_last_not_of(' ') + 1);
    const bool is_index =
        !name.empty() && name.find_first_not_of("0123456789") == std::string_view::npos;
    const bool device = is_index || name.starts_with("GPU-") || name.starts_with("MIG-");
    if (!device || std::find(names.begin(), names.end(), name) != names.end()) {
      break;
    }
    names.emplace_back(name);
  }
  return names;
}

std::optional<std::vector<std::string>> assign_gpus(const std::vector<std::string>& devices,
                                                    const std::vector<int>& wanted) {
  const auto sum = std::accumulate(wanted.begin(), wanted.end(), std::int64_t{0});
  if (sum > static_cast<std::int64_t>(devices.size())) {
    return std::nullopt;
  }
  std::vector<std::string> assigned;
  assigned.reserve(wanted.size());
  auto next = devices.begin();
  for (const int gpus : wanted) {
    assigned.push_back(fmt::format("{}", fmt::join(next, next + gpus, ",")));
    next += gpus;
  }
  return assigned;
}

void check_view(GpuView view, const std::vector<GangRank>& ranks) {
  std::map<std::string, std::vector<std::string>> seen; // By host.
  for (const auto& rank : ranks) {
    auto& devices = seen[rank.host];
    for (auto& device : own_gpus(rank).value_or(std::vector<std::string>())) {
      devices.push_back(std::move(device));
    }
    if (view == GpuView::node && devices.size() > 1 && are_parts(devices)) {
      throw UsageError("--gpus-visible=node: of parts of GPUs (MIG), CUDA shows a process only "
                       "one; drop it");
    }
  }
}

std::optional<std::vector<std::string>> own_gpus(const GangRank& rank) {
  return rank.devices ? std::optional(visible_gpus(*rank.devices)) : std::nullopt;
}

std::vector<std::string> devices_of(const GangPlan& plan) {
  std::vector<std::string> devices;
  for (const auto& rank : plan.ranks) {
    for (auto& device : visible_gpus(rank.devices.value_or(""))) {
      devices.push_back(std::move(device));
    }
  }
  return devices;
}

} // namespace dtrain
