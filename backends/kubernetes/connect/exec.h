// A command in a container, on this terminal.
//
// Over a WebSocket, whose binary messages begin with the byte of a channel: 0 input, 1 output,
// 2 errors, 3 how it ended (a Status), 4 the terminal's size; 255 (v5.channel.k8s.io) says which
// channel has ended.
#pragma once

#include "backends/job_output.h"
#include "backends/job_status.h"
#include "backends/kubernetes/api/api_client.h"

#include <string>
#include <vector>

namespace dtrain::kubernetes {

/// Runs `command` beside a running instance, with the instance's environment and our input, output
/// and errors; if input and output are the same terminal, as a terminal in raw mode and with its
/// size. Returns its exit code; 128 + signal if a signal ended us, or SIGPIPE would have: then the
/// command and its children get a SIGTERM, as the API would leave them running. The terminal is
/// always restored. Throws NotFound if there is no such job, EngineError if the instance does not
/// run, the command cannot be started, or the connection breaks.
int exec_beside(ApiClient& api, const JobRef& job, const std::string& instance,
                const std::vector<std::string>& command);

/// As Backend::read_files(), with tar in the instance's container, which has to run. Throws
/// Interrupted if a signal ended us.
void read_files(ApiClient& api, const JobRef& job, const std::string& instance,
                const std::string& path, const ByteSink& sink);

/// The exit code in the Status that ends a command. Throws EngineError with its message where the
/// command was not run.
int exit_code_of(const nlohmann::json& status);

} // namespace dtrain::kubernetes
