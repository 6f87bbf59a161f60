// Devices as CUDA_VISIBLE_DEVICES names them, and who gets which.
#pragma once

#include "backends/supervised/gang/gang_plan.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dtrain {

/// The entries of a CUDA_VISIBLE_DEVICES.
std::vector<std::string> visible_gpus(std::string_view variable);

/// GangRank::devices for each rank: as many as it wants, which no other rank has. Empty where there
/// are too few.
std::optional<std::vector<std::string>> assign_gpus(const std::vector<std::string>& devices,
                                                    const std::vector<int>& wanted);

/// Throws UsageError where the ranks of a machine would see parts of GPUs (MIG) of each other's.
void check_view(GpuView view, const std::vector<GangRank>& ranks);

/// The rank's own, of its plan; unset: it sees what its node shows it.
std::optional<std::vector<std::string>> own_gpus(const GangRank& rank);

/// Devices of all ranks of the plan.
std::vector<std::string> devices_of(const GangPlan& plan);

} // namespace dtrain
