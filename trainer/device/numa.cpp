#include "trainer/device/numa.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <fstream>
#include <iterator>

#include "trainer/device/cpu_set.h"

namespace trainer {
namespace {

/// The first line of a file; empty: there is none.
std::string line_of(const std::string& path) {
  std::string line;
  std::ifstream file(path);
  std::getline(file, line);
  return line;
}

/// What is at the text's beginning, which is taken off; -1: no number.
int take_number(std::string_view& text) {
  int number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return error == std::errc() ? number : -1;
}

} // namespace

std::vector<int> parse_cpu_list(std::string_view text) {
  std::vector<int> cpus;
  while (!text.empty()) {
    const int first = take_number(text);
    int last = first;
    if (text.starts_with('-')) {
      text.remove_prefix(1);
      last = take_number(text);
    }
    if (first < 0 || last < first || last >= CpuSet::k_most) {
      return {};
    }
    for (int cpu = first; cpu <= last; ++cpu) {
      cpus.push_back(cpu);
    }
    if (!text.empty() && !text.starts_with(',')) {
      return {};
    }
    text.remove_prefix(text.empty() ? 0 : 1);
  }
  return cpus;
}

std::optional<NumaNode> numa_node_of(const std::string& bus_id, const std::string& sysfs) {
  std::string device = sysfs + "/bus/pci/devices/";
  std::transform(bus_id.begin(), bus_id.end(), std::back_inserter(device),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  const std::string number = line_of(device + "/numa_node"); // -1: the firmware does not say.
  std::string_view rest = number;
  const NumaNode node{take_number(rest), parse_cpu_list(line_of(device + "/local_cpulist"))};
  const bool is_one = parse_cpu_list(line_of(sysfs + "/devices/system/node/online")).size() < 2;
  return is_one || node.number < 0 || node.cpus.empty() ? std::nullopt : std::optional(node);
}

bool bind_to(const NumaNode& node) {
  CpuSet allowed;
  std::vector<int> both;
  std::copy_if(node.cpus.begin(), node.cpus.end(), std::back_inserter(both),
               [&](int cpu) { return allowed.has(cpu); });
  return !both.empty() && allowed.put(both);
}

} // namespace trainer
