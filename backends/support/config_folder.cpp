#include "backends/support/config_folder.h"

#include <cstdlib>

namespace dtrain {

std::filesystem::path config_folder() {
  const char* config = std::getenv("XDG_CONFIG_HOME");
  if (config != nullptr && config[0] == '/') {
    return std::filesystem::path(config) / "dtrain";
  }
  const char* home = std::getenv("HOME");
  return std::filesystem::path(home == nullptr ? "/" : home) / ".config" / "dtrain";
}

} // namespace dtrain
