#include "backends/local/gpu_claims.h"

#include "backends/supervised/stop.h"
#include "backends/support/os/files.h"
#include "backends/support/os/machine.h"
#include "submit/errors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <iterator>
#include <sstream>

namespace dtrain {

namespace {

constexpr const char* k_folder = "gpus";
constexpr mode_t k_private = 0600;

/// A device's name, a path's separators replaced, and whose it is: a home may be several machines'.
std::string file_of(std::string device) {
  std::replace(device.begin(), device.end(), '/', '_');
  return "gpu-" + device + "@" + this_machine().boot;
}

struct flock whole_file() {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return lock;
}

/// A job that still has a line here, but no lock, lost its supervisor and guard at once.
void end_last_user(const Fd& file) {
  std::array<char, std::size_t{2} * PATH_MAX> text{};
  const auto count = pread(file.get(), text.data(), text.size(), 0);
  std::istringstream lines(
      std::string(text.data(), static_cast<std::size_t>(std::max<ssize_t>(count, 0))));
  std::string uid;
  std::string cgroup;
  if (std::getline(lines, uid) && std::getline(lines, cgroup)) {
    end_leftovers(uid, cgroup);
  }
}

bool is_claimed(const Fd& folder, const std::string& device) {
  const Fd file(openat(folder.get(), file_of(device).c_str(), O_RDWR | O_CLOEXEC));
  struct flock lock = whole_file();
  return file && fcntl(file.get(), F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

} // namespace

std::vector<std::string> unclaimed_gpus(const std::string& root,
                                        const std::vector<std::string>& devices) {
  const Fd parent = open_private_folder(root, false);
  const Fd folder =
      parent ? open_private_folder_at(parent.get(), k_folder, root + "/" + k_folder, false) : Fd();
  if (!folder) {
    return devices;
  }
  std::vector<std::string> unclaimed;
  std::copy_if(devices.begin(), devices.end(), std::back_inserter(unclaimed),
               [&](const std::string& device) { return !is_claimed(folder, device); });
  return unclaimed;
}

std::optional<std::vector<Fd>>
claim_gpus(const std::string& root, const std::vector<std::string>& devices, const GpuUser& user) {
  std::vector<Fd> claims;
  if (devices.empty()) {
    return claims;
  }
  const Fd parent = open_private_folder(root, true);
  const Fd folder = open_private_folder_at(parent.get(), k_folder, root + "/" + k_folder, true);
  for (const auto& device : devices) {
    const auto name = file_of(device);
    Fd file(openat(folder.get(), name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, k_private));
    if (!file) {
      throw EngineError(
          fmt::format("cannot write {}/{}/{}: {}", root, k_folder, name, errno_text()));
    }
    struct flock lock = whole_file();
    if (fcntl(file.get(), F_OFD_SETLK, &lock) != 0) {
      return std::nullopt;
    }
    end_last_user(file);
    forget_user(file);
    write_all(file.get(), fmt::format("{}\n{}\n", user.uid, user.cgroup));
    claims.push_back(std::move(file));
  }
  return claims;
}

void forget_user(const Fd& claim) {
  const int ignored = ftruncate(claim.get(), 0);
  static_cast<void>(ignored);
  lseek(claim.get(), 0, SEEK_SET);
}

} // namespace dtrain
