// A pipe whose ends are closed by themselves, and are no other program's.
#pragma once

#include "backends/support/os/fd.h"

#include <string>

namespace dtrain {

struct Pipe {
  Fd read_end;
  Fd write_end;
};

/// Throws EngineError.
Pipe make_pipe();

/// Reads and writes of it give up at once where they would wait.
void make_non_blocking(const Fd& fd);

/// All that can be read now from a non-blocking pipe.
std::string read_what_is_there(const Fd& pipe);

} // namespace dtrain
