// The fields of a job that all engines with a supervisor of ours take, and the excuses that they
// share.
#pragma once

#include "backends/engine.h"

#include <string_view>
#include <vector>

namespace dtrain {

/// Adds the fields that an engine also takes, does not use, and refuses.
std::vector<FieldUse> supervised_fields(std::vector<std::string_view> taken,
                                        std::vector<FieldExcuse> unused,
                                        std::vector<FieldExcuse> refused);

/// For each of them: what it starts is in the plan.
inline constexpr Lack k_no_server = {Ability::try_plan,
                                     "has no server to check the job; use --dry-run"};

} // namespace dtrain
