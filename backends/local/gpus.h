// The GPUs of this machine.
#pragma once

#include "submit/options/environment.h"

#include <string>
#include <vector>

namespace dtrain {

inline constexpr EnvironmentVariable k_local_gpus = {
    "DTRAIN_LOCAL_GPUS",
    "How many GPUs this machine has, if detection is wrong; with CUDA_VISIBLE_DEVICES, its first "
    "N. On a host that ssh reaches, set it in the login environment there"};

/// The devices that ranks may use, as CUDA_VISIBLE_DEVICES names them: those of an inherited
/// CUDA_VISIBLE_DEVICES (indices or UUIDs, up to the first that is not one, as CUDA reads it), else
/// all that the driver shows. DTRAIN_LOCAL_GPUS=N says how many where that is wrong: the first N.
/// Throws UsageError where that is no number.
std::vector<std::string> find_gpus();

/// The index of a device that is named by its UUID or, as CUDA takes it, by the first of it; the
/// name itself where it is neither, or the driver, in `driver_gpus`, shows no such device.
std::string gpu_index(const std::string& device,
                      const std::string& driver_gpus = "/proc/driver/nvidia/gpus");

} // namespace dtrain
