// What a rank's host is sent to start it: templates/ssh/guard.sh, and the rank in front of it.
#pragma once

#include "backends/supervised/gang/channel.h"

#include <chrono>
#include <string>

namespace dtrain::ssh {

/// Of a rank's environment: a word that only it and what it starts have.
inline constexpr const char* k_process_variable = "DTRAIN_PROCESS";

/// How long a host's guard waits for a word from here, and how often it gets one.
inline constexpr std::chrono::seconds k_guard_patience{20};
inline constexpr std::chrono::seconds k_beat{4};

/// For sh, byte for byte. `id`: the word; `grace_ms`: between TERM and KILL; `parcel`: the digest
/// of the folder in which the host has the program; empty: it is the host's own.
std::string rank_script(const RankCommand& command, const std::string& id, int grace_ms,
                        const std::string& parcel);

} // namespace dtrain::ssh
