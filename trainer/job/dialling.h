// The listening address of a task of TF_CONFIG, and connecting to it while it may still be
// starting.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "trainer/job/handshake.h"

namespace trainer {

struct TaskAddress {
  std::string host;
  int port = 0;

  /// "host:port", "[::1]:port". Throws UsageError naming `what`, "parameter server 1".
  static TaskAddress parse(const std::string& text, const std::string& what);
};

/// Listens there. Throws ClusterError, naming `what`, where the address cannot be had.
Fd listen_as_task(const TaskAddress& address, const std::string& what, double timeout);

/// Dials and hands the authenticated connection to `meet`, again and again until that returns.
/// Returns none on success; at the deadline, why the last attempt failed. A LinkError from `meet`
/// counts as a failed attempt; `waits` is called with each. Throws RefusedError if another attempt
/// cannot help.
std::optional<std::string> dial_until(const TaskAddress& address, const std::string& token,
                                      const Introduction& self, Deadline deadline,
                                      const std::function<void(Fd)>& meet,
                                      const std::function<void(const std::string&)>& waits = {});

} // namespace trainer
