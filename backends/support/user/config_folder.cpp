#include "backends/support/user/config_folder.h"

#include <cstdlib>

namespace dtrain {

namespace {

std::filesystem::path folder(const char* variable, const char* below_home) {
  const char* chosen = std::getenv(variable);
  if (chosen != nullptr && chosen[0] == '/') {
    return std::filesystem::path(chosen) / "dtrain";
  }
  const char* home = std::getenv("HOME");
  return std::filesystem::path(home == nullptr ? "/" : home) / below_home / "dtrain";
}

} // namespace

std::filesystem::path config_folder() { return folder("XDG_CONFIG_HOME", ".config"); }

std::filesystem::path cache_folder() { return folder("XDG_CACHE_HOME", ".cache"); }

} // namespace dtrain
