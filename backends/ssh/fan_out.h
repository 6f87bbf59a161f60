// Runs one script on many hosts at once and collects their output, for scripts that start nothing
// and hold no secret. Ranks are started differently, by each host's agent (connection.h).
//
// Uses pdsh for the fan-out if it is installed; otherwise does it itself, with the same ssh and the
// same result. At most 32 connections are open at a time.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace dtrain::ssh {

inline constexpr std::size_t k_most_connecting = 32;

struct HostAnswer {
  std::vector<std::string> lines; ///< Printed by the script.
  std::string failure;            ///< Why there is no answer, and what to do; empty: there is one.
};

/// In the order of the hosts. `words`: the script's $1 …
std::vector<HostAnswer> ask_hosts(const std::vector<std::string>& hosts, const std::string& script,
                                  const std::vector<std::string>& words = {});

} // namespace dtrain::ssh
