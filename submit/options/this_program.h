// The location of the running program.
#pragma once

#include <filesystem>

namespace dtrain {

/// The path that starts the same program again; other programs and plug-ins of ours are beside it.
/// In the tarball (cmake/portable) it is the launcher, bin/NAME, which starts lib/dtrain/NAME.
/// Empty if the kernel does not tell.
std::filesystem::path this_program();

/// Has ps and pgrep name this process after its program, and not after the loader that started it.
void name_process();

} // namespace dtrain
