// Folders of a user's settings, secrets, templates and jobs, and of caches.
#pragma once

#include <filesystem>

namespace dtrain {

/// $XDG_CONFIG_HOME/dtrain, or ~/.config/dtrain; a relative XDG_CONFIG_HOME counts as unset, as the
/// XDG specification says.
std::filesystem::path config_folder();

/// $XDG_CACHE_HOME/dtrain, or ~/.cache/dtrain: what can be deleted at any time.
std::filesystem::path cache_folder();

/// $XDG_STATE_HOME/dtrain, or ~/.local/state/dtrain: jobs, and which GPUs they have. Throws Error
/// where nobody says where home is.
std::filesystem::path state_folder();

} // namespace dtrain
