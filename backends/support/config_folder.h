// Where a user's settings, secrets and templates are.
#pragma once

#include <filesystem>

namespace dtrain {

/// $XDG_CONFIG_HOME/dtrain, or ~/.config/dtrain; a relative XDG_CONFIG_HOME counts as unset, as the
/// XDG specification says.
std::filesystem::path config_folder();

} // namespace dtrain
