// What a rank's host is sent to start it: templates/ssh/guard.sh, and the rank in front of it.
#pragma once

#include "backends/supervised/gang/channel.h"

#include <chrono>
#include <string>

namespace dtrain::ssh {

/// Of a rank's environment: a word that only it and what it starts have.
inline constexpr const char* k_process_variable = "DTRAIN_PROCESS";

/// How long a host's guard waits for a word from here: 20 s, or DTRAIN_SSH_PATIENCE in seconds. It
/// gets five in that time.
std::chrono::seconds guard_patience();

struct RankSetting {
  std::string id;            ///< The word.
  int grace_ms = 0;          ///< Between TERM and KILL.
  std::string parcel;        ///< The digest of the folder in which the host has the program; empty:
                             ///< it is the host's own.
  bool has_launcher = false; ///< One rank starts processes beside the others …
  bool launches = false;     ///< … and is this one.
};

/// For sh, byte for byte.
std::string rank_script(const RankCommand& command, const RankSetting& setting);

} // namespace dtrain::ssh
