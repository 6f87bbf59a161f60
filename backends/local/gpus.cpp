#include "backends/local/gpus.h"

#include "backends/supervised/gang/devices.h"
#include "backends/support/os/files.h"
#include "submit/errors.h"
#include "submit/text/trimmed.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <set>
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

/// DTRAIN_LOCAL_GPUS.
std::optional<std::size_t> said_count() {
  const char* text = k_local_gpus.value();
  if (text == nullptr) {
    return std::nullopt;
  }
  const auto count = parse_count(text);
  if (!count || *count > k_most_gpus) {
    throw UsageError(fmt::format(
        "DTRAIN_LOCAL_GPUS={}: must be a number of GPUs from 0 to {}; correct or unset it",
        printable(text), k_most_gpus));
  }
  return static_cast<std::size_t>(*count);
}

std::vector<std::string> indices(std::size_t count) {
  std::vector<std::string> names(count);
  std::generate(names.begin(), names.end(), [i = 0]() mutable { return std::to_string(i++); });
  return names;
}

/// Counts one folder per device, or, where a container hides /proc, one device file.
std::size_t count_driver_gpus() {
  std::size_t count = 0;
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
  const auto said = said_count();
  if (const char* variable = std::getenv("CUDA_VISIBLE_DEVICES"); variable != nullptr) {
    auto names = visible_gpus(variable);
    names.resize(std::min(names.size(), said.value_or(names.size())));
    return names;
  }
  return indices(said ? *said : count_driver_gpus());
}

std::string gpu_index(const std::string& device, const std::string& driver_gpus) {
  const Fd folder(device.starts_with("GPU-")
                      ? open(driver_gpus.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)
                      : -1);
  std::set<std::string> buses; // CUDA_DEVICE_ORDER=PCI_BUS_ID
  if (folder) {
    for_each_entry(folder.get(), [&](const char* name) { buses.insert(name); });
  }
  int index = 0;
  for (const auto& bus : buses) {
    constexpr std::string_view k_uuid = "GPU UUID:";
    std::ifstream information(fmt::format("{}/{}/information", driver_gpus, bus));
    for (std::string line; std::getline(information, line);) {
      if (line.starts_with(k_uuid) &&
          trimmed(std::string_view(line).substr(k_uuid.size())).starts_with(device)) {
        return std::to_string(index);
      }
    }
    ++index;
  }
  return device;
}

} // namespace dtrain
