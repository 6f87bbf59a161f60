// How ssh is called, and what its complaints mean.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dtrain::ssh {

/// `command` for a host's login shell, with what ssh needs to fail instead of asking. A connection
/// of its own, whatever the user's ssh_config shares or forwards: the end of one that is shared is
/// not seen while others use it, and a port can be forwarded but once. It ends where the host is
/// silent for a minute.
std::vector<std::string> ssh_command(const std::string& host, const std::string& command);

/// The same for a connection that stays open (connection.h), whose heartbeats tell whether the host
/// is there. `log`: where ssh writes its messages.
std::vector<std::string> ssh_connection_command(const std::string& host, const std::string& log,
                                                const std::string& command);

/// One line of ssh's messages, and what to do about it.
std::string explain_loss(const std::string& host, std::string_view said);

} // namespace dtrain::ssh
