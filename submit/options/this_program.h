// Where the program that runs lies.
#pragma once

#include <filesystem>

namespace dtrain {

/// What to start for the same program again; other programs and plug-ins of ours lie beside it. Of
/// the tarball (cmake/portable) that is the launcher, bin/NAME, which starts lib/dtrain/NAME. Empty
/// where the kernel does not say.
std::filesystem::path this_program();

/// Has ps and pgrep name this process after its program, and not after the loader that started it.
void name_process();

} // namespace dtrain
