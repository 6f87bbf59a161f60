// A port of this machine's loopback that leads to a Pod's.
//
// Each connection is a WebSocket of its own (v4.channel.k8s.io), whose binary messages begin with
// the byte of a channel: 0 the data, 1 what went wrong. The first message of each channel is the
// port that was asked for, in two bytes.
#pragma once

#include "backends/kubernetes/api/api_client.h"

#include <functional>
#include <string>

namespace dtrain::kubernetes {

struct PodPort {
  std::string namespace_name;
  std::string pod;
  int port = 0;
};

struct Forwarding {
  std::function<PodPort()> target;                ///< Asked for each connection.
  std::function<void(int port)> opened;           ///< The port of 127.0.0.1.
  std::function<void(const std::string&)> warned; ///< A connection that came to nothing, one line.
};

/// Listens on `port` (0: any that is free) of 127.0.0.1, and forwards what connects, until SIGINT
/// or SIGTERM. Gives the signal's number. Throws EngineError where the port cannot be had.
int forward_port(ApiClient& api, int port, const Forwarding& forwarding);

} // namespace dtrain::kubernetes
