// The script that a host's agent gets to start a rank: its begin() becomes the rank.
#pragma once

#include "backends/supervised/gang/channel.h"

#include <string>

namespace dtrain::ssh {

/// Placeholder for the path of the host file if ranks have no common one: each host has its own.
inline constexpr const char* k_own_hostfile = "dtrain:hostfile";

struct RankSetting {
  std::string bundle;        ///< The digest of the folder in which the host has the program; empty:
                             ///< it is the host's own.
  bool has_launcher = false; ///< One rank starts processes beside the others …
  bool launches = false;     ///< … and is this one.
};

/// Quoted for sh, byte for byte.
std::string rank_script(const RankCommand& command, const RankSetting& setting);

} // namespace dtrain::ssh
