// The programs and folders that a job needs, looked for before anything is started.
#pragma once

#include "backends/supervised/gang_plan.h"

#include <string>

namespace dtrain {

/// The bundled trainer: DTRAIN_TRAINER, else the dtrain-trainer beside this program. Empty where
/// there is none that can be run.
std::string find_trainer();

/// Throws UsageError where `program` cannot be run, found as execvp would in `path`.
void require_program(const std::string& program, const std::string& path,
                     const std::string& working_dir);

/// The path of the program of that name; empty where PATH has none.
std::string find_program(const std::string& name);

/// Throws UsageError where the plan's folder, data or program is not there. `path`: the PATH that
/// the ranks inherit.
void require_startable(const GangPlan& plan, const std::string& path);

/// This process's PATH, or what execvp takes without one.
std::string inherited_path();

} // namespace dtrain
