// Which GPUs of this machine ranks hold, of the jobs of all its users, started here and over ssh
// alike, so that two are not given the same one while another is free.
//
// One registry a machine: a folder that every user can write to, and nobody can take another's
// files from (mode 1777). It is kept here and by templates/ssh/facts.sh, to the same rules:
//
//   CLAIM             a rank's: its devices are its own while somebody has locked this file
//                     (flock). The kernel drops the lock when who held it ends, however that ends
//   gpu-DEVICE.CLAIM  such a device, by its index, though a job names it by its UUID. Of a job of
//                     this machine's, its uid and control group
//   lock              locked while devices are given out
//
// The supervisor holds the locks of its ranks, one each, and lets go of each when that has ended.
// What others wrote is never read: only that it is there, and locked, counts.
#pragma once

#include "backends/supervised/stop.h"
#include "backends/support/os/fd.h"
#include "submit/options/environment.h"

#include <cstddef>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace dtrain {

inline constexpr EnvironmentVariable k_gpu_claims = {
    "DTRAIN_GPU_CLAIMS",
    "Folder in which the jobs of all users of this machine record the GPUs that their ranks hold, "
    "both local jobs and jobs that arrive over ssh (default: /run/lock/dtrain-gpus, or "
    "/var/tmp/dtrain-gpus where only root can write in /run/lock). All of them must use the same "
    "folder; on a host that ssh reaches, set it in the login environment there. A rank's GPUs are "
    "free again once it has ended, however it ended"};

/// The devices that no rank has, in their order. Makes no file.
std::vector<std::string> unclaimed_gpus(const std::vector<std::string>& devices);

/// The names of other users whose ranks have some of them, in order.
std::set<std::string> other_users_of(const std::vector<std::string>& devices);

/// The owner of claims, by which processes that a job left on a GPU can be ended when its
/// supervisor is gone.
struct GpuUser {
  std::string uid;
  std::string cgroup; ///< May be empty.
};

/// The devices of one rank. They become free when it is destroyed.
class GpuClaim {
 public:
  /// `free`: those of them that it has for itself. Throws EngineError.
  GpuClaim(std::vector<std::string> devices, const std::vector<std::string>& free, const Fd& folder,
           const GpuUser& user);
  ~GpuClaim();
  GpuClaim(GpuClaim&&) noexcept = default;
  GpuClaim& operator=(GpuClaim&&) = delete;

  /// The devices as they were asked for, including those that had been shared out before.
  const std::vector<std::string>& devices() const { return devices_; }

 private:
  explicit GpuClaim(std::vector<std::string> devices) : devices_(std::move(devices)) {}

  std::vector<std::string> devices_;
  std::vector<std::string> files_; ///< In the registry's folder, the claim's own the first.
  Fd folder_;
  Fd lock_;
};

/// What ends a job's leftovers, and gives those that do not end.
using EndLeftovers = std::function<decltype(end_leftovers)>;

/// A claim for each rank, of the devices that it is to have. As many as `may_be_shared` may be
/// another's too. Empty where more are. Throws EngineError where the registry cannot be kept, or a
/// process of the last job on a device does not end: that may hold the device's memory.
std::optional<std::vector<GpuClaim>> claim_gpus(const std::vector<std::vector<std::string>>& ranks,
                                                std::size_t may_be_shared, const GpuUser& user,
                                                const EndLeftovers& end = end_leftovers);

} // namespace dtrain
