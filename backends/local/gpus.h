// The GPUs of this machine, and who gets which.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dtrain {

/// The devices that ranks may use, as CUDA_VISIBLE_DEVICES names them: those of an inherited
/// CUDA_VISIBLE_DEVICES (indices or UUIDs, up to the first that is not one, as CUDA reads it), else
/// all that the driver shows. DTRAIN_LOCAL_GPUS=N says how many where that is wrong.
/// Throws UsageError where that is no number.
std::vector<std::string> find_gpus();

/// The entries of a CUDA_VISIBLE_DEVICES.
std::vector<std::string> visible_gpus(std::string_view variable);

/// CUDA_VISIBLE_DEVICES for each rank: as many devices as it wants, which no other rank has. Empty
/// where there are too few.
std::optional<std::vector<std::string>> assign_gpus(const std::vector<std::string>& devices,
                                                    const std::vector<int>& wanted);

} // namespace dtrain
