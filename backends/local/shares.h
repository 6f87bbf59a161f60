// File servers' shares that this machine has mounted.
#pragma once

#include <string>
#include <string_view>

namespace dtrain {

/// The folder that shows `share`, SERVER:/PATH, by the lines of /proc/self/mounts: the share
/// itself, or one that it is a folder of. Empty where none does.
std::string find_share(std::string_view share, std::string_view mounts);

/// The same with this machine's mounts.
std::string find_share(std::string_view share);

} // namespace dtrain
