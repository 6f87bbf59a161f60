#include "backends/local/gpus.h"

#include "backends/supervised/gang/devices.h"
#include "backends/support/os/files.h"
#include "submit/errors.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <string_view>

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

} // namespace dtrain
