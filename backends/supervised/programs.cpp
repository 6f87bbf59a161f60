#include "backends/supervised/programs.h"

#include "submit/errors.h"
#include "submit/options/environment.h"
#include "submit/options/this_program.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

namespace dtrain {

namespace {

constexpr const char* k_default_path = "/bin:/usr/bin"; ///< execvp's, without PATH.

} // namespace

bool is_runnable(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && access(path.c_str(), X_OK) == 0;
}

std::string inherited_path() {
  const char* path = std::getenv("PATH");
  return path != nullptr ? path : k_default_path;
}

std::string find_program(const std::string& name) {
  const std::string path = inherited_path();
  for (std::size_t at = 0; at <= path.size();) {
    const auto end = std::min(path.find(':', at), path.size());
    auto candidate = path.substr(at, end - at) + "/" + name;
    if (candidate[0] == '/' && is_runnable(candidate)) {
      return candidate;
    }
    at = end + 1;
  }
  return "";
}

std::string find_trainer() {
  if (const char* named = environment::k_trainer.value(); named != nullptr) {
    if (!is_runnable(named)) {
      throw UsageError(fmt::format("DTRAIN_TRAINER={} is not executable: set it to the "
                                   "trainer's path, or unset it",
                                   printable(named)));
    }
    return std::filesystem::absolute(named).string();
  }
  auto beside = (this_program().parent_path() / "dtrain-trainer").string();
  return is_runnable(beside) ? beside : std::string();
}

} // namespace dtrain
