#include "backends/local/gpus.h"
#include "backends/local/local_backend.h"
#include "backends/local/programs.h"
#include "backends/support/os/files.h"
#include "submit/errors.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>
#include <thread>

namespace dtrain {

namespace {

using Level = CheckResult::Level;

constexpr std::uint64_t k_mebibyte = 1 << 20;
constexpr std::uint64_t k_least_shared_memory = 64 * k_mebibyte; ///< Docker's default.
constexpr std::uint64_t k_least_disk = 256 * k_mebibyte;
constexpr rlim_t k_least_files = 1024;

/// Leaves no folder behind that was not there.
CheckResult check_state(const JobStore& store) {
  std::filesystem::path folder = store.root();
  std::error_code error;
  if (std::filesystem::exists(folder, error)) {
    try {
      store.discard(store.stage());
    } catch (const Error& refused) {
      return {Level::error, "State folder", refused.what()};
    }
  } else {
    while (!std::filesystem::exists(folder, error) && folder.has_relative_path()) {
      folder = folder.parent_path();
    }
    if (access(folder.c_str(), W_OK | X_OK) != 0) {
      return {Level::error, "State folder",
              fmt::format("cannot make {}: {}: {}", store.root(), folder.string(), errno_text())};
    }
  }
  struct statvfs disk {};
  const bool known = statvfs(folder.c_str(), &disk) == 0;
  const auto free = known ? disk.f_bavail * disk.f_frsize : 0;
  return {known && free < k_least_disk ? Level::warning : Level::ok, "State folder",
          fmt::format("{}, {} MiB free", store.root(), free / k_mebibyte)};
}

CheckResult check_trainer() {
  try {
    const auto path = find_trainer();
    return path.empty() ? CheckResult{Level::warning, "Trainer",
                                      "dtrain-trainer is not beside dtrain: jobs need a command"}
                        : CheckResult{Level::ok, "Trainer", path};
  } catch (const Error& error) {
    return {Level::error, "Trainer", error.what()};
  }
}

CheckResult check_gpus() {
  try {
    const auto gpus = find_gpus();
    return {Level::ok, "GPUs",
            gpus.empty() ? "none: jobs run on the CPU"
                         : fmt::format("{} ({})", gpus.size(), fmt::join(gpus, ", "))};
  } catch (const Error& error) {
    return {Level::error, "GPUs", error.what()};
  }
}

CheckResult check_shared_memory() {
  struct statvfs memory {};
  if (statvfs("/dev/shm", &memory) != 0) {
    return {Level::warning, "Shared memory", "no /dev/shm: ranks exchange gradients over TCP"};
  }
  const auto size = memory.f_blocks * memory.f_frsize;
  const bool enough = size > k_least_shared_memory;
  return {enough ? Level::ok : Level::warning, "Shared memory",
          fmt::format("/dev/shm of {} MiB{}", size / k_mebibyte,
                      enough ? "" : ": little; in Docker, run with --shm-size=1g")};
}

CheckResult check_files() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  return {limit.rlim_max < k_least_files ? Level::warning : Level::ok, "Open files",
          fmt::format("{} a process, up to {}", limit.rlim_cur, limit.rlim_max)};
}

} // namespace

std::vector<CheckResult> LocalBackend::check() {
  return {check_state(store_),
          {Level::ok, "CPUs", fmt::format("{}", std::thread::hardware_concurrency())},
          check_gpus(),
          check_trainer(),
          check_shared_memory(),
          check_files()};
}

} // namespace dtrain
