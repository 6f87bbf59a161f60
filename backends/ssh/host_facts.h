// The answers of a host before ranks start there (templates/ssh/preflight.sh).
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
  std::vector<std::string> wants;  ///< Parts of the payload that it lacks.
  std::string address;             ///< Its address, at which ranks on other hosts reach it.
  std::string sshd;                ///< The port that ssh came in at.
  std::string machine;             ///< No other's that has a network of its own.
  std::int64_t ahead = 0;          ///< How far its clock is ahead of ours, in seconds.
  std::optional<std::string> gpus; ///< GPUs that the job may have; unset: nobody chose.
  std::set<int> ports;             ///< Ports in use.
};

HostFacts read_host_facts(std::string_view text);

} // namespace dtrain::ssh
