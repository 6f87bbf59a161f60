// A command beside a process of a job: in its folder, with its variables, on this terminal.
#pragma once

#include <string>
#include <sys/types.h>
#include <vector>

namespace dtrain {

/// The command's exit code, 128 + signal where one ended it. Throws EngineError where the process
/// has ended.
int exec_beside(pid_t process, const std::vector<std::string>& command);

} // namespace dtrain
