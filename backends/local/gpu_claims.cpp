#include "backends/local/gpu_claims.h"

#include "backends/local/gpus.h"
#include "backends/support/os/files.h"
#include "backends/support/os/random.h"
#include "submit/errors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <pwd.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <iterator>
#include <sstream>
#include <string_view>
#include <thread>

namespace dtrain {

namespace {

constexpr mode_t k_folder_of_all = 01777;
constexpr mode_t k_readable_by_all = 0644;
constexpr std::size_t k_id_bytes = 16;
constexpr const char* k_lock = "lock";

/// Not in /tmp, which some machines clear overnight, nor in /dev/shm, from which a user's files are
/// removed when he logs out.
std::string registry_path() {
  if (const char* given = k_gpu_claims.value()) {
    return given;
  }
  struct stat info {};
  const bool is_for_all = stat("/run/lock", &info) == 0 && (info.st_mode & S_ISVTX) != 0;
  return fmt::format("{}/dtrain-gpus", is_for_all ? "/run/lock" : "/var/tmp");
}

[[noreturn]] void throw_unusable(const std::string& path) {
  const int error = errno;
  throw EngineError(fmt::format("cannot use {}: {}: all users of this machine record there which "
                                "GPUs are in use (chmod 1777); DTRAIN_GPU_CLAIMS names another "
                                "folder",
                                printable(path), errno_text(error)));
}

/// Empty where there is none and none is to be made.
Fd open_registry(bool create) {
  constexpr int k_open_folder = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
  const auto path = registry_path();
  Fd folder(open(path.c_str(), k_open_folder));
  if (!folder && errno == ENOENT) {
    if (!create) {
      return {};
    }
    const bool is_new = mkdir(path.c_str(), k_folder_of_all) == 0;
    if (is_new || errno == EEXIST) {
      folder = Fd(open(path.c_str(), k_open_folder));
    }
    if (is_new && folder) {
      fchmod(folder.get(), k_folder_of_all); // Whatever the umask.
    }
  }
  if (!folder) {
    throw_unusable(path);
  }
  return folder;
}

/// Another's is not waited for, whatever it may be.
Fd open_in(const Fd& folder, const std::string& name) {
  return Fd(openat(folder.get(), name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
}

Fd make_in(const Fd& folder, const std::string& name) {
  Fd file(
      openat(folder.get(), name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, k_readable_by_all));
  if (file) {
    fchmod(file.get(), k_readable_by_all); // Who cannot open it cannot see that it is locked.
  }
  return file;
}

/// "gpu-3.": of its index, or else its name, a path's separators replaced.
std::string files_of(std::string device) {
  device = gpu_index(device);
  std::replace(device.begin(), device.end(), '/', '_');
  return "gpu-" + device + ".";
}

/// Readers lock the file, too, but exclude nobody except the holder.
bool is_held(const Fd& folder, const std::string& claim) {
  const Fd file = open_in(folder, claim);
  return file && flock(file.get(), LOCK_SH | LOCK_NB) != 0;
}

bool is_own(int file) {
  struct stat info {};
  return fstat(file, &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == geteuid();
}

/// The files of who has or had a device, "gpu-3.CLAIM".
std::vector<std::string> holders_of(const Fd& folder, const std::string& device) {
  const auto start = files_of(device);
  std::vector<std::string> holders;
  for_each_entry(folder.get(), [&](const char* name) {
    if (std::string_view(name).starts_with(start)) {
      holders.emplace_back(name);
    }
  });
  return holders;
}

std::string claim_of(const std::string& holder) { return holder.substr(holder.rfind('.') + 1); }

/// The name of the user whose rank has it; his number where he has none.
std::string user_of(const Fd& folder, const std::string& claim) {
  struct stat info {};
  if (fstatat(folder.get(), claim.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0 ||
      info.st_uid == geteuid()) {
    return "";
  }
  const passwd* user = getpwuid(info.st_uid);
  return user == nullptr ? fmt::format("user {}", info.st_uid) : user->pw_name;
}

/// A job of this user's whose claim is there but locked by nobody lost its supervisor and guard at
/// once. Where some of it does not end, the claim stays, and the device is nobody's.
void end_last_user(const Fd& folder, const std::string& device, const EndLeftovers& end) {
  for (const std::string& holder : holders_of(folder, device)) {
    const Fd file = open_in(folder, holder);
    const auto claim = claim_of(holder);
    if (!file || !is_own(file.get()) || is_held(folder, claim)) {
      continue;
    }
    std::istringstream lines(read_file_at(folder.get(), holder).value_or(""));
    GpuUser user;
    std::getline(lines, user.uid);
    std::getline(lines, user.cgroup);
    if (!user.uid.empty() && faccessat(folder.get(), claim.c_str(), F_OK, 0) == 0) {
      check_ended(end(user.uid, user.cgroup), fmt::format("the job that had GPU {} last", device));
    }
    unlinkat(folder.get(), claim.c_str(), 0);
    unlinkat(folder.get(), holder.c_str(), 0);
  }
}

/// Whoever gives devices out, here or over ssh, is done in no time.
Fd lock_registry(const Fd& folder) {
  constexpr std::chrono::milliseconds k_pause{20};
  constexpr int k_rounds = 500;
  Fd lock = open_in(folder, k_lock);
  if (!lock && errno == ENOENT) {
    lock = make_in(folder, k_lock);
    if (!lock && errno == EEXIST) { // Somebody else's by now.
      lock = open_in(folder, k_lock);
    }
  }
  if (!lock) {
    throw_unusable(fmt::format("{}/{}", registry_path(), k_lock));
  }
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

} // namespace

std::vector<std::string> unclaimed_gpus(const std::vector<std::string>& devices) {
  const Fd folder = open_registry(false);
  if (!folder) {
    return devices;
  }
  std::vector<std::string> unclaimed;
  std::copy_if(devices.begin(), devices.end(), std::back_inserter(unclaimed),
               [&](const std::string& device) {
                 const auto holders = holders_of(folder, device);
                 return std::none_of(holders.begin(), holders.end(), [&](const auto& holder) {
                   return is_held(folder, claim_of(holder));
                 });
               });
  return unclaimed;
}

std::set<std::string> other_users_of(const std::vector<std::string>& devices) {
  std::set<std::string> users;
  const Fd folder = open_registry(false);
  for (std::size_t i = 0; folder && i < devices.size(); ++i) {
    for (const std::string& holder : holders_of(folder, devices[i])) {
      if (const auto claim = claim_of(holder); is_held(folder, claim)) {
        users.insert(user_of(folder, claim));
      }
    }
  }
  users.erase("");
  return users;
}

GpuClaim::GpuClaim(std::vector<std::string> devices, const std::vector<std::string>& free,
                   const Fd& folder, const GpuUser& user)
    : GpuClaim(std::move(devices)) { // From here on what is made is removed where this throws.
  if (free.empty()) {
    return;
  }
  const auto id = random_hex(k_id_bytes);
  const auto fail = [&] { throw_unusable(fmt::format("{}/{}", registry_path(), files_.back())); };
  folder_ = Fd(openat(folder.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  files_.push_back(id);
  lock_ = make_in(folder, id);
  if (!folder_ || !lock_) {
    fail();
  }
  flock(lock_.get(), LOCK_EX | LOCK_NB); // Nobody knows of it yet.
  for (const auto& device : free) {
    files_.push_back(files_of(device) + id);
    const Fd file = make_in(folder, files_.back());
    if (!file || !write_all(file.get(), fmt::format("{}\n{}\n", user.uid, user.cgroup))) {
      fail();
    }
  }
}

GpuClaim::~GpuClaim() {
  if (lock_) { // Released in order, so that nothing of its job needs to be looked for.
    for (const std::string& file : files_) {
      unlinkat(folder_.get(), file.c_str(), 0);
    }
  }
}

std::optional<std::vector<GpuClaim>> claim_gpus(const std::vector<std::vector<std::string>>& ranks,
                                                std::size_t may_be_shared, const GpuUser& user,
                                                const EndLeftovers& end) {
  std::vector<GpuClaim> claims;
  if (std::all_of(ranks.begin(), ranks.end(), [](const auto& each) { return each.empty(); })) {
    for (const auto& devices : ranks) {
      claims.emplace_back(devices, devices, Fd(), user);
    }
    return claims;
  }
  const Fd folder = open_registry(true);
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
    for (const std::string& device : free[i]) {
      end_last_user(folder, device, end);
    }
    claims.emplace_back(ranks[i], free[i], folder, user);
  }
  return claims;
}

} // namespace dtrain
