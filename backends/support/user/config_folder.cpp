#include "backends/support/user/config_folder.h"

#include "submit/errors.h"
#include "submit/options/environment.h"

#include <pwd.h>
#include <unistd.h>

#include <cstdlib>

namespace dtrain {

namespace {

namespace fs = std::filesystem;

/// Empty if there is none.
fs::path home_folder() {
  const char* home = std::getenv("HOME");
  return home != nullptr && home[0] == '/' ? home : fs::path();
}

fs::path folder(const EnvironmentVariable& variable, const fs::path& home, const char* below_home) {
  const char* chosen = variable.value();
  const bool is_chosen = chosen != nullptr && chosen[0] == '/';
  return (is_chosen ? fs::path(chosen) : (home.empty() ? "/" : home) / below_home) / "dtrain";
}

} // namespace

fs::path config_folder() { return folder(environment::k_config_home, home_folder(), ".config"); }

fs::path cache_folder() { return folder(environment::k_cache_home, home_folder(), ".cache"); }

fs::path state_folder() {
  fs::path home = home_folder();
  if (home.empty()) {
    const passwd* user = getpwuid(geteuid());
    home = user == nullptr || user->pw_dir == nullptr ? "" : user->pw_dir;
  }
  auto state = folder(environment::k_state_home, home, ".local/state");
  if (home.empty() && state == "/.local/state/dtrain") {
    throw Error("no home folder to keep jobs in: set XDG_STATE_HOME to a folder of your own");
  }
  return state;
}

} // namespace dtrain
