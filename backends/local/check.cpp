#include "backends/local/gpu_claims.h"
#include "backends/local/gpu_health.h"
#include "backends/local/gpu_measurement.h"
#include "backends/local/gpus.h"
#include "backends/local/local_backend.h"
#include "submit/errors.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/statvfs.h>

#include <thread>

namespace dtrain {

namespace {

using Level = CheckResult::Level;

constexpr std::uint64_t k_mebibyte = 1 << 20;
constexpr std::uint64_t k_least_shared_memory = 64 * k_mebibyte; ///< Docker's default.
constexpr rlim_t k_least_files = 1024;

CheckResult check_gpus() {
  try {
    const auto gpus = find_gpus();
    return {Level::ok, "GPUs",
            gpus.empty() ? "none; jobs run on the CPU"
                         : fmt::format("{} ({})", gpus.size(), fmt::join(gpus, ", "))};
  } catch (const Error& error) {
    return {Level::error, "GPUs", error.what()};
  }
}

/// Nothing where there are no GPUs.
std::vector<CheckResult> check_gpu_health() {
  constexpr const char* k_what = "GPU health";
  try {
    if (find_gpus().empty()) {
      return {};
    }
    const GpuHealth health = ask_gpu_health();
    if (!health.is_known) {
      return {{Level::warning, k_what, "unknown: nvidia-smi is not in PATH"}};
    }
    std::vector<CheckResult> found;
    for (const GpuReport& gpu : health.gpus) {
      if (!gpu.fault.empty()) {
        found.push_back({Level::warning, k_what,
                         fmt::format("{}; or hide it with CUDA_VISIBLE_DEVICES", gpu.fault)});
      }
    }
    if (!health.failure.empty()) {
      found.push_back({Level::warning, k_what, health.failure});
    } else if (health.gpus.empty()) {
      found.push_back({Level::warning, k_what, "unknown: nvidia-smi lists no GPU"});
    }
    return found.empty() ? std::vector<CheckResult>{{Level::ok, k_what,
                                                     fmt::format("driver {}, no memory errors",
                                                                 health.driver)}}
                         : found;
  } catch (const Error& error) {
    return {{Level::warning, k_what, error.what()}};
  }
}

/// Nothing where there are no GPUs. GPUs that jobs use are left alone.
std::vector<CheckResult> check_gpu_speed() {
  constexpr const char* k_what = "GPU speed";
  try {
    const auto all = find_gpus();
    const auto free = unclaimed_gpus(all);
    if (all.empty()) {
      return {};
    }
    if (free.empty()) {
      return {{Level::note, k_what, "not measured: jobs use all GPUs"}};
    }
    const MeasuredGpus measured = measure_gpus(free);
    std::vector<CheckResult> found;
    for (const auto& [device, fault] : measured.faults) {
      found.push_back({Level::warning, k_what, fault});
    }
    for (const std::string& fault : measured.links) {
      found.push_back({Level::warning, k_what, fault});
    }
    if (!measured.failure.empty()) {
      found.push_back({Level::note, k_what, "not measured: " + measured.failure});
    }
    return found.empty() ? std::vector<CheckResult>{{Level::ok, k_what, measured.speeds}} : found;
  } catch (const Error& error) {
    return {{Level::warning, k_what, error.what()}};
  }
}

CheckResult check_shared_memory() {
  struct statvfs memory {};
  if (statvfs("/dev/shm", &memory) != 0) {
    return {Level::warning, "Shared memory", "no /dev/shm; ranks exchange gradients over TCP"};
  }
  const auto size = memory.f_blocks * memory.f_frsize;
  const bool enough = size > k_least_shared_memory;
  return {enough ? Level::ok : Level::warning, "Shared memory",
          fmt::format("/dev/shm of {} MiB{}", size / k_mebibyte,
                      enough ? "" : ", which is small; in Docker, run with --shm-size=1g")};
}

CheckResult check_files() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  return {limit.rlim_max < k_least_files ? Level::warning : Level::ok, "Open files",
          fmt::format("{} per process, up to {}", limit.rlim_cur, limit.rlim_max)};
}

} // namespace

std::vector<CheckResult> LocalBackend::check() {
  std::vector<CheckResult> results = {
      check_state(),
      {Level::ok, "CPUs", fmt::format("{}", std::thread::hardware_concurrency())},
      check_gpus()};
  for (const auto& check : {check_gpu_health, check_gpu_speed}) {
    for (CheckResult& found : check()) {
      results.push_back(std::move(found));
    }
  }
  for (const CheckResult& other : {check_trainer(), check_shared_memory(), check_files()}) {
    results.push_back(other);
  }
  return results;
}

} // namespace dtrain
