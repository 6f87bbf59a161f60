// A program on our own terminal, which is ours again at its end.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace dtrain {

/// Waits for a child of ours: its exit code, 128 + signal where one ended it. Ctrl-C is the
/// child's.
int end_of_child(pid_t child);

/// Runs it to its end. 127 where there is no such program.
int run_in_foreground(const std::vector<std::string>& command);

} // namespace dtrain
