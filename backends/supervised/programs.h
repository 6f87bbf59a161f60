// The programs that a submission looks for on its own machine.
#pragma once

#include <string>

namespace dtrain {

bool is_runnable(const std::string& path);

/// PATH of this process, or the default of execvp.
std::string inherited_path();

/// The path of the program of that name; empty where PATH has none.
std::string find_program(const std::string& name);

/// The bundled trainer: DTRAIN_TRAINER, else the dtrain-trainer beside this program. Empty if none
/// can be run.
std::string find_trainer();

} // namespace dtrain
