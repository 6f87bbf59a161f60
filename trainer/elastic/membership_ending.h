// How a member's round ends: shared by membership.cpp, where it asks others to lead, and
// leading.cpp, where it leads.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "trainer/elastic/membership.h"

namespace trainer {

inline constexpr double k_call_seconds = 1;        ///< For a listener to answer.
inline constexpr std::size_t k_most_attempts = 64; ///< As the wire has room for.

/// How a call to a listener, or a turn at leading, has ended.
struct Membership::Ending {
  enum class Kind {
    formed, ///< `proposal` stands, and `links` lead to its members.
    moved,  ///< To `to`.
    busy,   ///< It is alive: again later.
    silent, ///< Nobody answers.
    over,   ///< The job is done.
    behind  ///< It went on without this member, and all others have ended.
  };
  Kind kind = Kind::silent;
  Address to{};
  Proposal proposal{};
  std::vector<Fd> links{};
  std::vector<std::string> lost{};
  std::vector<std::string> joined{};
};

} // namespace trainer
