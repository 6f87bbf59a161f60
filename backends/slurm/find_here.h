// The query that commands repeat most, where Slurm's commands are on this machine: find.sh's answer
// without a shell, which would take as long as all of dtrain.
#pragma once

#include "backends/batch/login.h"

#include <optional>
#include <string>

namespace dtrain::slurm {

/// The output of find.sh for the job in `folder`, as long as squeue knows it. Returns nothing for
/// the cases that the script has to examine: not a job of ours, an array, a job that Slurm has
/// forgotten, or a job in another cluster of a federation. Throws EngineError if squeue fails.
std::optional<std::string> find_here(const batch::Login& login, const std::string& folder);

} // namespace dtrain::slurm
