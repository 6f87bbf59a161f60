// A port of this machine to one of a host's own, by ssh -L.
#pragma once

#include <functional>
#include <string>

namespace dtrain::ssh {

/// Opens `port` (0: any that is free) of 127.0.0.1 to `remote` of the host's localhost, tells the
/// URL here, and serves it until SIGINT or SIGTERM, whose number it gives. Throws EngineError with
/// what ssh says.
int forward_port(const std::string& host, int port, const std::string& remote,
                 const std::function<void(const std::string& url)>& opened);

} // namespace dtrain::ssh
