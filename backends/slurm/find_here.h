// What is asked of a job again and again, where Slurm's commands are on this machine: find.sh's
// answer, without a shell, which takes as long as all of dtrain.
#pragma once

#include "backends/batch/login.h"

#include <optional>
#include <string>

namespace dtrain::slurm {

/// As find.sh prints it of the job in `folder`, while squeue knows it. Nothing of what the script
/// has to look at more closely: no job of ours, an array, a job that Slurm has forgotten, or one
/// that another cluster of a federation has. Throws EngineError where squeue fails.
std::optional<std::string> find_here(const batch::Login& login, const std::string& folder);

} // namespace dtrain::slurm
