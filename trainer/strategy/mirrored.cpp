#include "trainer/strategy/mirrored.h"

#include <algorithm>
#include <exception>
#include <mutex>
#include <thread>

#include <fmt/format.h>

#include "trainer/collectives/in_process/worker_group.h"
#include "trainer/errors.h"

namespace trainer {
namespace {

constexpr std::size_t k_most_devices = 256;
constexpr std::size_t k_longest_number = 3;

bool is_numbered(const std::string& device, const std::string& kind) {
  const std::string start = kind + ":";
  return device.starts_with(start) && device.size() > start.size() &&
         device.size() <= start.size() + k_longest_number &&
         std::all_of(device.begin() + static_cast<std::ptrdiff_t>(start.size()), device.end(),
                     [](char c) { return c >= '0' && c <= '9'; });
}

} // namespace

std::vector<std::string> parse_devices(const std::string& text) {
  std::vector<std::string> devices;
  for (std::size_t at = 0; !text.empty() && at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    const std::string device = text.substr(at, end - at);
    if (!is_numbered(device, "cpu") && !is_numbered(device, "gpu")) {
      throw UsageError(fmt::format(
          "--devices={}: '{}' is no device; use cpu:0,cpu:1, or gpu:0,gpu:1", text, device));
    }
    if (!devices.empty() && devices.front().substr(0, 3) != device.substr(0, 3)) {
      throw UsageError(fmt::format("--devices={}: CPUs and GPUs in one process; their kernels "
                                   "round otherwise, and replicas would drift apart; use GPUs "
                                   "alone, or CPUs",
                                   text));
    }
    if (std::find(devices.begin(), devices.end(), device) != devices.end()) {
      throw UsageError(fmt::format("--devices={}: {} is there twice", text, device));
    }
    devices.push_back(device);
    at = end + 1;
  }
  if (devices.size() > k_most_devices) {
    throw UsageError(
        fmt::format("--devices: {} devices, {} are the most", devices.size(), k_most_devices));
  }
  return devices;
}

CrossDeviceOps parse_cross_device_ops(const std::string& text) {
  if (text == "nccl") {
    return CrossDeviceOps::nccl;
  }
  if (text == "reduction-to-one") {
    return CrossDeviceOps::reduction_to_one;
  }
  return text == "hierarchical-copy" ? CrossDeviceOps::hierarchical_copy
                                     : CrossDeviceOps::automatic;
}

namespace {

template <typename Group>
void run_in(Group& group, int replicas, const std::function<void(Communicator&)>& body) {
  std::mutex mutex;
  std::exception_ptr first;
  const auto run = [&](int replica) {
    const auto give_up = [&](const char* why) {
      {
        const std::lock_guard lock(mutex);
        first = first ? first : std::current_exception();
      }
      group.fail(replica, why);
    };
    try {
      body(group.communicator(replica));
    } catch (const std::exception& error) {
      give_up(error.what());
    } catch (...) {
      give_up("an unknown error");
    }
  };
  std::vector<std::thread> threads;
  for (int replica = 1; replica < replicas; ++replica) {
    threads.emplace_back(run, replica);
  }
  run(0);
  for (std::thread& thread : threads) {
    thread.join();
  }
  if (first) {
    std::rethrow_exception(first);
  }
}

} // namespace

void run_replicas(int replicas, CrossDeviceOps ops,
                  const std::function<void(Communicator&)>& body) {
  InProcessGroup group(replicas, ops);
  run_in(group, replicas, body);
}

void run_replicas(int replicas, Communicator& between,
                  const std::function<void(Communicator&)>& body) {
  WorkerGroup group(replicas, between);
  run_in(group, replicas, body);
}

} // namespace trainer
