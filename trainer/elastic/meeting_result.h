// The result of a member's round: shared by membership.cpp, where it joins a leader, and
// leading.cpp, where it leads.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "trainer/elastic/membership.h"

namespace trainer {

inline constexpr double k_call_seconds = 1;        ///< For a listener to answer.
inline constexpr std::size_t k_most_attempts = 64; ///< Limit of the message format.

/// Result of a call to a listener, or of a turn at leading.
struct Membership::MeetingResult {
  enum class Kind {
    formed, ///< All agreed to `proposal`; `links` connect to its members.
    moved,  ///< `to` leads.
    busy,   ///< Alive, but cannot be joined now.
    silent, ///< No answer.
    over,   ///< The job is done.
    behind  ///< The others may have continued without this member, and have ended.
  };
  Kind kind = Kind::silent;
  Address to{};
  Proposal proposal{};
  std::vector<Fd> links{};
  std::vector<std::string> lost{};
  std::vector<std::string> joined{};
};

} // namespace trainer
