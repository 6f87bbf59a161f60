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
          fmt::format("{} per process, up to {}", limit.rlim_cur, limit.rlim_max)};
}

} // namespace

std::vector<CheckResult> LocalBackend::check() {
  return {check_state(),
          {Level::ok, "CPUs", fmt::format("{}", std::thread::hardware_concurrency())},
          check_gpus(),
          check_trainer(),
          check_shared_memory(),
          check_files()};
}

} // namespace dtrain
