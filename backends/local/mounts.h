// Data where the job expects it: folders and files of this machine mounted at other paths, seen by
// one process and those it starts. Nothing is made or mounted outside of it.
#pragma once

#include "backends/supervised/gang/gang_plan.h"

#include <string>
#include <vector>

namespace dtrain {

/// Throws Error, saying what to do, if this machine does not allow a process to have mounts of its
/// own. Data that is wanted at its own path needs none.
void check_mounts(const std::vector<Mount>& mounts);

/// Moves this process, which must have one thread, into mounts of its own. `workspace` is an empty
/// folder. Throws Error naming the mount and what to do.
///
/// A target that is not there gets a mount point without a change to the disk: the nearest folder
/// above it is covered by one in memory that shows the same entries.
void enter_mounts(const std::vector<Mount>& mounts, const std::string& workspace);

} // namespace dtrain
