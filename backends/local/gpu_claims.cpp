#include "backends/local/gpu_claims.h"

#include "backends/local/gpus.h"
#include "backends/support/os/files.h"
#include "backends/support/os/machine.h"
#include "backends/support/os/random.h"
#include "backends/support/user/config_folder.h"
#include "submit/errors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <iterator>
#include <sstream>
#include <thread>

namespace dtrain {

namespace {

constexpr mode_t k_private = 0600;
constexpr std::size_t k_id_bytes = 16;
constexpr const char* k_lock = "lock";

std::string registry_path() {
  const char* given = k_gpu_claims.value();
  return given != nullptr ? given : fmt::format("{}/gpus@{}", state_folder().string(), host_name());
}

/// A device's index, or else its name, a path's separators replaced.
std::string file_of(std::string device) {
  device = gpu_index(device);
  std::replace(device.begin(), device.end(), '/', '_');
  return "gpu-" + device;
}

Fd open_in(const Fd& folder, const std::string& name) {
  Fd file(openat(folder.get(), name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, k_private));
  if (!file) {
    throw EngineError(fmt::format("cannot write {}/{}: {}", registry_path(), name, errno_text()));
  }
  return file;
}

/// The contents of a device's file: who holds it.
struct Holder {
  std::string claim; ///< Empty: nobody has had it.
  GpuUser user;
};

Holder holder_of(const Fd& folder, const std::string& device) {
  const Fd file(openat(folder.get(), file_of(device).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  std::array<char, std::size_t{2} * PATH_MAX> text{};
  const auto count = file ? pread(file.get(), text.data(), text.size(), 0) : 0;
  std::istringstream lines(
      std::string(text.data(), static_cast<std::size_t>(std::max<ssize_t>(count, 0))));
  Holder holder;
  std::getline(lines, holder.claim);
  std::getline(lines, holder.user.uid);
  std::getline(lines, holder.user.cgroup);
  if (holder.claim.find('/') != std::string::npos) {
    return {}; // No name of ours.
  }
  return holder;
}

/// Readers lock the file, too, but exclude nobody except the holder.
bool is_held(const Fd& folder, const Holder& holder) {
  const Fd claim(holder.claim.empty() ? -1
                                      : openat(folder.get(), holder.claim.c_str(),
                                               O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  return claim && flock(claim.get(), LOCK_SH | LOCK_NB) != 0;
}

/// A job whose claim is there but locked by nobody lost its supervisor and guard at once. Where
/// some of it does not end, the claim stays, and the device is nobody's.
void end_last_user(const Fd& folder, const std::string& device, const EndLeftovers& end) {
  const Holder holder = holder_of(folder, device);
  if (!holder.user.uid.empty() && faccessat(folder.get(), holder.claim.c_str(), F_OK, 0) == 0) {
    check_ended(end(holder.user.uid, holder.user.cgroup),
                fmt::format("the job that had GPU {} last", device));
    unlinkat(folder.get(), holder.claim.c_str(), 0);
  }
}

/// Whoever gives devices out, here or over ssh, is done in no time.
Fd lock_registry(const Fd& folder) {
  constexpr std::chrono::milliseconds k_pause{20};
  constexpr int k_rounds = 500;
  Fd lock = open_in(folder, k_lock);
  for (int round = 0; flock(lock.get(), LOCK_EX | LOCK_NB) != 0; ++round) {
    if (round == k_rounds) {
      throw EngineError(fmt::format("timed out waiting for the GPU lock {}/{}: end the process "
                                    "that holds it (lsof names it)",
                                    registry_path(), k_lock));
    }
    std::this_thread::sleep_for(k_pause);
  }
  return lock;
}

GpuClaim claim_one(const Fd& folder, const std::vector<std::string>& devices,
                   const std::vector<std::string>& free, const GpuUser& user,
                   const EndLeftovers& end) {
  if (free.empty()) {
    return {devices, "", Fd()};
  }
  const auto id = random_hex(k_id_bytes);
  GpuClaim claim(devices, registry_path() + "/" + id, open_in(folder, id));
  for (const auto& device : free) {
    end_last_user(folder, device, end);
    const Fd file = open_in(folder, file_of(device));
    if (ftruncate(file.get(), 0) != 0 ||
        !write_all(file.get(), fmt::format("{}\n{}\n{}\n", id, user.uid, user.cgroup))) {
      throw EngineError(fmt::format("cannot write {}/{}, which records GPUs in use: {}",
                                    registry_path(), file_of(device), errno_text()));
    }
  }
  return claim;
}

} // namespace

std::vector<std::string> unclaimed_gpus(const std::vector<std::string>& devices) {
  const Fd folder = open_private_folder(registry_path(), false);
  if (!folder) {
    return devices;
  }
  std::vector<std::string> unclaimed;
  std::copy_if(
      devices.begin(), devices.end(), std::back_inserter(unclaimed),
      [&](const std::string& device) { return !is_held(folder, holder_of(folder, device)); });
  return unclaimed;
}

GpuClaim::GpuClaim(std::vector<std::string> devices, std::string path, Fd lock)
    : devices_(std::move(devices)), path_(std::move(path)), lock_(std::move(lock)) {
  if (lock_) {
    flock(lock_.get(), LOCK_EX | LOCK_NB); // Nobody knows of it yet.
  }
}

GpuClaim::~GpuClaim() {
  if (lock_) {
    unlink(path_.c_str()); // Released in order, so that nothing of its job needs to be looked for.
  }
}

std::optional<std::vector<GpuClaim>> claim_gpus(const std::vector<std::vector<std::string>>& ranks,
                                                std::size_t may_be_shared, const GpuUser& user,
                                                const EndLeftovers& end) {
  std::vector<GpuClaim> claims;
  if (std::all_of(ranks.begin(), ranks.end(), [](const auto& each) { return each.empty(); })) {
    for (const auto& devices : ranks) {
      claims.emplace_back(devices, "", Fd());
    }
    return claims;
  }
  const Fd folder = open_private_folder(registry_path(), true);
  const Fd lock = lock_registry(folder);
  std::vector<std::vector<std::string>> free;
  std::size_t taken = 0;
  for (const auto& devices : ranks) {
    free.push_back(unclaimed_gpus(devices));
    taken += devices.size() - free.back().size();
  }
  if (taken > may_be_shared) {
    return std::nullopt;
  }
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    claims.push_back(claim_one(folder, ranks[i], free[i], user, end));
  }
  return claims;
}

} // namespace dtrain
