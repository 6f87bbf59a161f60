// A line for whatever shell a user logs in with on a host: sh, csh, tcsh, fish, zsh. They agree on
// little: fish takes \ for an escape in '…', csh no newline there and ! for history anywhere.
#pragma once

#include <string>
#include <vector>

namespace dtrain::ssh {

/// Has sh run the script, with `words` as its $1 …, every byte of them as it is. ssh's stdin is the
/// script's. Throws UsageError on a NUL byte.
std::string login_line(const std::string& script, const std::vector<std::string>& words = {});

} // namespace dtrain::ssh
