// Which GPUs of this machine ranks of the user hold, of jobs that were started here and over ssh
// alike, so that two are not given the same one while another is free.
//
// One registry: the private folder $XDG_STATE_HOME/dtrain/gpus@HOST, or DTRAIN_GPU_CLAIMS. It is
// kept here and by templates/ssh/facts.sh, to the same rules:
//
//   gpu-DEVICE  its first line is the claim that has it; of a job of this machine's, the job's uid
//               and control group follow. DEVICE is its index, though a job names it by its UUID
//   CLAIM       a rank's: its devices are its own while somebody has locked this file (flock). The
//               kernel drops the lock when who held it ends, however that ends
//   lock        locked while devices are given out
//
// The supervisor holds the locks of its ranks, one each, and lets go of each when that has ended.
#pragma once

#include "backends/supervised/stop.h"
#include "backends/support/os/fd.h"
#include "submit/options/environment.h"

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace dtrain {

inline constexpr EnvironmentVariable k_gpu_claims = {
    "DTRAIN_GPU_CLAIMS",
    "Folder on this machine in which your jobs record the GPUs that their ranks hold, both local "
    "jobs and jobs that arrive over ssh (default: dtrain/gpus@HOST in XDG_STATE_HOME). All of them "
    "must use the same folder; on a host that ssh reaches, set it in the login environment there. "
    "A rank's GPUs are free again once it has ended, however it ended"};

/// The devices that no rank has, in their order. Makes no file.
std::vector<std::string> unclaimed_gpus(const std::vector<std::string>& devices);

/// The owner of claims, by which processes that a job left on a GPU can be ended when its
/// supervisor is gone.
struct GpuUser {
  std::string uid;
  std::string cgroup; ///< May be empty.
};

/// The devices of one rank. They become free when it is destroyed.
class GpuClaim {
 public:
  GpuClaim(std::vector<std::string> devices, std::string path, Fd lock);
  ~GpuClaim();
  GpuClaim(GpuClaim&&) noexcept = default;
  GpuClaim& operator=(GpuClaim&&) = delete;

  /// The devices as they were asked for, including those that had been shared out before.
  const std::vector<std::string>& devices() const { return devices_; }

 private:
  std::vector<std::string> devices_;
  std::string path_;
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
