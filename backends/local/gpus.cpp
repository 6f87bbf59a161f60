#include "backends/local/gpus.h"

#include "backends/support/os/files.h"
#include "submit/errors.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <numeric>

namespace dtrain {

namespace {

constexpr int k_most_gpus = 1024;

std::optional<int> parse_count(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) {
    return std::nullopt;
  }
  return value;
}

std::vector<std::string> indices(int count) {
  std::vector<std::string> names(static_cast<std::size_t>(count));
  std::generate(names.begin(), names.end(), [i = 0]() mutable { return std::to_string(i++); });
  return names;
}

/// One folder a device, or, where a container hides /proc, one device file.
int count_driver_gpus() {
  int count = 0;
  const Fd folder(open("/proc/driver/nvidia/gpus", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder) {
    for_each_entry(folder.get(), [&](const char*) { ++count; });
  }
  const Fd devices(count == 0 ? open("/dev", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1);
  if (devices) {
    constexpr std::string_view k_prefix = "nvidia";
    for_each_entry(devices.get(), [&](const char* name) {
      const std::string_view device(name);
      if (device.starts_with(k_prefix) && parse_count(device.substr(k_prefix.size()))) {
        ++count;
      }
    });
  }
  return count;
}

} // namespace

std::vector<std::string> visible_gpus(std::string_view variable) {
  std::vector<std::string> names;
  while (!variable.empty()) {
    const auto comma = std::min(variable.find(','), variable.size());
    auto name = variable.substr(0, comma);
    variable.remove_prefix(std::min(comma + 1, variable.size()));
    name.remove_prefix(std::min(name.find_first_not_of(' '), name.size()));
    name = name.substr(0, name.find_last_not_of(' ') + 1);
    const bool device = parse_count(name) || name.starts_with("GPU-") || name.starts_with("MIG-");
    if (!device || std::find(names.begin(), names.end(), name) != names.end()) {
      break;
    }
    names.emplace_back(name);
  }
  return names;
}

std::vector<std::string> find_gpus() {
  if (const char* text = std::getenv("DTRAIN_LOCAL_GPUS"); text != nullptr && *text != '\0') {
    const auto count = parse_count(text);
    if (!count || *count > k_most_gpus) {
      throw UsageError(fmt::format("DTRAIN_LOCAL_GPUS={} is not a number of GPUs: give one from 0 "
                                   "to {}, or unset it",
                                   printable(text), k_most_gpus));
    }
    return indices(*count);
  }
  if (const char* variable = std::getenv("CUDA_VISIBLE_DEVICES"); variable != nullptr) {
    return visible_gpus(variable);
  }
  return indices(count_driver_gpus());
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

} // namespace dtrain
