// Which GPUs running jobs hold, so that two jobs are not given the same one while another is free.
//
// A claim is a lock on ROOT/gpus/gpu-DEVICE@BOOT, held by the job's supervisor: the kernel drops it
// when that process ends, however it ends.
#pragma once

#include "backends/support/os/fd.h"

#include <optional>
#include <string>
#include <vector>

namespace dtrain {

/// The devices that no job has claimed, in their order. Makes no file.
std::vector<std::string> unclaimed_gpus(const std::string& root,
                                        const std::vector<std::string>& devices);

/// Whose claim it is, to end what a job leaves on a GPU where nobody who looked after it is left.
struct GpuUser {
  std::string uid;
  std::string cgroup; ///< Or empty.
};

/// Locks, each kept until its Fd is closed. Empty where another job has one of the devices.
std::optional<std::vector<Fd>>
claim_gpus(const std::string& root, const std::vector<std::string>& devices, const GpuUser& user);

/// Before a claim is closed whose job ended in order, or goes on without the device.
void forget_user(const Fd& claim);

} // namespace dtrain
