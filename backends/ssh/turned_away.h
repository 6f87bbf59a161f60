// An sshd, a jump host's above all, turns people away while many are on their way in (MaxStartups):
// they come again, later each time, and not all at once.
#pragma once

#include <chrono>
#include <string_view>

namespace dtrain::ssh {

inline constexpr int k_most_tries = 6;

/// Recognised by ssh's last message.
bool is_turned_away(std::string_view said);

/// Before the try of that number; the second is number 1.
std::chrono::milliseconds pause_before(int tries);

} // namespace dtrain::ssh
