// A command in a container, on this terminal.
//
// Over a WebSocket, whose binary messages begin with the byte of a channel: 0 input, 1 output,
// 2 errors, 3 how it ended (a Status), 4 the terminal's size; 255 (v5.channel.k8s.io) says which
// channel has ended.
#pragma once

#include "backends/backend.h"
#include "backends/kubernetes/api_client.h"

#include <string>
#include <vector>

namespace dtrain::kubernetes {

struct ContainerRef {
  std::string namespace_name;
  std::string pod;
  std::string container;
};

/// Runs `command` with our input, output and errors; as a terminal's, in raw mode and with its
/// size, where input and output are one. Its exit code; 128 + signal where a signal ended us, which
/// leaves the command to itself. The terminal is put back whatever happens. Throws EngineError
/// where the command cannot be started or the connection breaks.
int exec_in_container(ApiClient& api, const ContainerRef& container,
                      const std::vector<std::string>& command);

/// The same beside a running instance, with the variables that its command has. Throws NotFound
/// where there is no such job, EngineError where the instance does not run.
int exec_beside(ApiClient& api, const JobRef& job, const std::string& instance,
                const std::vector<std::string>& command);

/// The exit code in the Status that ends a command. Throws EngineError with its message where the
/// command was not run.
int exit_code_of(const nlohmann::json& status);

} // namespace dtrain::kubernetes
