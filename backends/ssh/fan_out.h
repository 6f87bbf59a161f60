// One script on many hosts at once, to hear what each has to say: for what starts nothing and holds
// no secret. Ranks are started otherwise, each by the host's agent (connection.h).
//
// Where pdsh is installed it does the fan-out, else we do, with the same ssh and the same result;
// at most 32 connections are open at a time.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace dtrain::ssh {

inline constexpr std::size_t k_most_connecting = 32;

struct HostAnswer {
  std::vector<std::string> lines; ///< That the script printed.
  std::string failure;            ///< Why there is no answer, and what to do; empty: there is one.
};

/// In the order of the hosts. `words`: the script's $1 …
std::vector<HostAnswer> ask_hosts(const std::vector<std::string>& hosts, const std::string& script,
                                  const std::vector<std::string>& words = {});

} // namespace dtrain::ssh
