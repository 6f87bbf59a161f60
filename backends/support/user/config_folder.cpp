#include "backends/support/user/config_folder.h"

#include "submit/options/environment.h"

#include <cstdlib>

namespace dtrain {

namespace {

std::filesystem::path folder(const EnvironmentVariable& variable, const char* below_home) {
  const char* chosen = variable.value();
  if (chosen != nullptr && chosen[0] == '/') {
    return std::filesystem::path(chosen) / "dtrain";
  }
  const char* home = std::getenv("HOME");
  return std::filesystem::path(home == nullptr ? "/" : home) / below_home / "dtrain";
}

} // namespace

std::filesystem::path config_folder() { return folder(environment::k_config_home, ".config"); }

std::filesystem::path cache_folder() { return folder(environment::k_cache_home, ".cache"); }

} // namespace dtrain
