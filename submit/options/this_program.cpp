#include "submit/options/this_program.h"

#include <sys/prctl.h>

#include <cerrno>
#include <system_error>

namespace dtrain {

std::filesystem::path this_program() {
  std::error_code error;
  auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) {
    return {};
  }
  const auto folder = program.parent_path();
  const auto loader = folder / "ld-linux-x86-64.so.2";
  if (!folder.string().ends_with("/lib/dtrain") || !std::filesystem::exists(loader, error)) {
    return program;
  }
  // The launcher passed its own path as argv[0], also to the loader, which is the executable that
  // the kernel sees.
  return folder.parent_path().parent_path() / "bin" / program_invocation_short_name;
}

void name_process() { prctl(PR_SET_NAME, program_invocation_short_name); }

} // namespace dtrain
