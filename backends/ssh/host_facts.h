// What a host says of itself before ranks start there (templates/ssh/preflight.sh).
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace dtrain::ssh {

struct HostFacts {
  std::vector<std::string> lacks;  ///< "lacks the command setsid": why it cannot be used.
  std::vector<std::string> wants;  ///< Of the payload, what it is to be sent.
  std::string address;             ///< Its own, that ranks elsewhere reach it at.
  std::string sshd;                ///< The port that ssh came in at.
  std::string machine;             ///< No other's that has a network of its own.
  std::int64_t ahead = 0;          ///< Its clock, of ours, in seconds.
  std::optional<std::string> gpus; ///< That the job may have; unset: nobody chose.
  std::set<int> ports;             ///< That somebody listens on.
};

HostFacts read_host_facts(std::string_view text);

} // namespace dtrain::ssh
