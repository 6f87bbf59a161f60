#include "backends/local/usage.h"

#include "backends/support/os/process.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <fstream>
#include <sstream>
#include <thread>

namespace dtrain {

namespace {

constexpr std::chrono::milliseconds k_moment{250};
constexpr std::int64_t k_kibibyte = 1024;

/// Ticks that the whole machine worked since its start.
double busy_ticks() {
  std::ifstream file("/proc/stat");
  std::string cpu;
  double user = 0;
  double nice = 0;
  double system = 0;
  file >> cpu >> user >> nice >> system;
  return user + nice + system;
}

/// Bytes, of a line of /proc/meminfo.
std::int64_t memory_of(const std::string& key) {
  std::ifstream file("/proc/meminfo");
  std::string name;
  std::int64_t size = 0;
  std::string rest;
  while (file >> name >> size && std::getline(file, rest)) {
    if (name == key + ":") {
      return size * k_kibibyte;
    }
  }
  return 0;
}

struct ProcessUse {
  double ticks = 0;
  std::int64_t memory = 0;
};

/// Fields 14 and 15 (ticks) and 24 (pages) of /proc/PID/stat, counted after the name, which may
/// hold spaces.
ProcessUse use_of(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string text;
  std::getline(file, text);
  const auto name_end = text.rfind(')');
  if (name_end == std::string::npos) {
    return {};
  }
  std::istringstream fields(text.substr(name_end + 1));
  constexpr int k_first = 3;
  constexpr int k_user = 14;
  constexpr int k_system = 15;
  constexpr int k_resident = 24;
  ProcessUse use;
  std::string word;
  for (int field = k_first; field <= k_resident && fields >> word; ++field) {
    if (field == k_user || field == k_system) {
      use.ticks += std::stod(word);
    } else if (field == k_resident) {
      use.memory = std::stoll(word) * sysconf(_SC_PAGESIZE);
    }
  }
  return use;
}

ProcessUse use_of_tree(pid_t root) {
  ProcessUse sum = use_of(root);
  for (const auto& process : descendants(root)) {
    const auto use = use_of(process.id.pid);
    sum.ticks += use.ticks;
    sum.memory += use.memory;
  }
  return sum;
}

/// CPUs that were at work, from ticks before and after k_moment.
double cpus_of(double before, double after) {
  const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  return std::max(0.0, after - before) / ticks / std::chrono::duration<double>(k_moment).count();
}

} // namespace

NodeStatus node_usage(const std::string& node, int gpus, int gpus_requested) {
  const double before = busy_ticks();
  std::this_thread::sleep_for(k_moment);
  NodeStatus usage;
  usage.name = node;
  usage.address = "127.0.0.1";
  usage.status = "Ready";
  usage.cpus = static_cast<double>(std::thread::hardware_concurrency());
  usage.cpus_used = cpus_of(before, busy_ticks());
  usage.memory = memory_of("MemTotal");
  usage.memory_used = usage.memory - memory_of("MemAvailable");
  usage.gpus = gpus;
  usage.gpus_requested = gpus_requested;
  return usage;
}

std::vector<InstanceUsage> instance_usage(const std::vector<InstanceStatus>& instances) {
  std::vector<const InstanceStatus*> running;
  std::vector<double> before;
  for (const auto& instance : instances) {
    if (instance.phase == Phase::running && instance.pid > 0) {
      running.push_back(&instance);
      before.push_back(use_of_tree(static_cast<pid_t>(instance.pid)).ticks);
    }
  }
  std::this_thread::sleep_for(k_moment);
  std::vector<InstanceUsage> usage;
  for (std::size_t i = 0; i < running.size(); ++i) {
    const auto after = use_of_tree(static_cast<pid_t>(running[i]->pid));
    usage.push_back({running[i]->name, running[i]->node, cpus_of(before[i], after.ticks),
                     after.memory, running[i]->gpus});
  }
  return usage;
}

} // namespace dtrain
