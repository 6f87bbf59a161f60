// Where a task of TF_CONFIG listens, and how the others reach it while it may still be starting.
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
/// None then; at the deadline, why the last try failed. What `meet` throws as LinkError is such a
/// failure; `waits` is called with each. Throws RefusedError where trying again does not help.
std::optional<std::string> dial_until(const TaskAddress& address, const std::string& token,
                                      const Introduction& self, Deadline deadline,
                                      const std::function<void(Fd)>& meet,
                                      const std::function<void(const std::string&)>& waits = {});

} // namespace trainer
