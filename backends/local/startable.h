// The folders, data and program that a job needs here, looked for before anything is started.
#pragma once

#include "backends/supervised/gang/gang_plan.h"

#include <string>

namespace dtrain {

/// Throws UsageError where the plan's folder, data or program is not there. `path`: the PATH that
/// the ranks inherit.
void require_startable(const GangPlan& plan, const std::string& path);

} // namespace dtrain
