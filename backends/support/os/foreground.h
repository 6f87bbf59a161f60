// A program in this one's place: on its terminal, and with the terminal's signals.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace dtrain {

/// Runs it to its end. Its exit code, 128 + signal for one that ended it. Throws as spawn() does.
int run_in_foreground(const std::vector<std::string>& argv);

/// The same for a running child.
int wait_in_foreground(pid_t child);

} // namespace dtrain
