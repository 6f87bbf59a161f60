// What a host's agent is sent to start a rank: begin(), which becomes it.
#pragma once

#include "backends/supervised/gang/channel.h"

#include <string>

namespace dtrain::ssh {

/// What stands for the host file's path where ranks have no common one: each host has its own.
inline constexpr const char* k_own_hostfile = "dtrain:hostfile";

struct RankSetting {
  std::string bundle;        ///< The digest of the folder in which the host has the program; empty:
                             ///< it is the host's own.
  bool has_launcher = false; ///< One rank starts processes beside the others …
  bool launches = false;     ///< … and is this one.
};

/// For sh, byte for byte.
std::string rank_script(const RankCommand& command, const RankSetting& setting);

} // namespace dtrain::ssh
