#include "backends/supervised/programs.h"
#include "backends/supervised/supervised_backend.h"
#include "backends/support/os/files.h"
#include "submit/errors.h"

#include <fmt/format.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>

namespace dtrain {

using Level = CheckResult::Level;

/// Removes folders that it had to create.
CheckResult SupervisedBackend::check_state() const {
  constexpr std::uint64_t k_mebibyte = 1 << 20;
  constexpr std::uint64_t k_least_disk = 256 * k_mebibyte;
  std::filesystem::path folder = store_.root();
  std::error_code error;
  if (std::filesystem::exists(folder, error)) {
    try {
      store_.discard(store_.stage());
    } catch (const Error& refused) {
      return {Level::error, "State folder", refused.what()};
    }
  } else {
    while (!std::filesystem::exists(folder, error) && folder.has_relative_path()) {
      folder = folder.parent_path();
    }
    if (access(folder.c_str(), W_OK | X_OK) != 0) {
      return {Level::error, "State folder",
              fmt::format("cannot make {}: {}: {}", store_.root(), folder.string(), errno_text())};
    }
  }
  struct statvfs disk {};
  const bool known = statvfs(folder.c_str(), &disk) == 0;
  const auto free = known ? disk.f_bavail * disk.f_frsize : 0;
  return {known && free < k_least_disk ? Level::warning : Level::ok, "State folder",
          fmt::format("{}, {} MiB free", store_.root(), free / k_mebibyte)};
}

CheckResult SupervisedBackend::check_trainer() {
  try {
    const auto path = find_trainer();
    return path.empty()
               ? CheckResult{Level::warning, "Trainer",
                             "dtrain-trainer is not beside dtrain, so every job needs a command"}
               : CheckResult{Level::ok, "Trainer", path};
  } catch (const Error& error) {
    return {Level::error, "Trainer", error.what()};
  }
}

} // namespace dtrain
