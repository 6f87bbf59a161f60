// From a Pod to its instance's status. Pure.
#pragma once

#include "backends/job_status.h"

#include <nlohmann/json.hpp>

#include <optional>
#include <string>

namespace dtrain::kubernetes {

/// Number of failures of the rank before this Pod.
int failure_count(const nlohmann::json& pod);

Phase pod_phase(const nlohmann::json& pod);

/// When its main container ended; 0: it has not, or nobody knows.
Time pod_end(const nlohmann::json& pod);

/// Reads how the main container ended into `exit_code` or `signal`.
void read_exit(const nlohmann::json& pod, std::optional<int>& exit_code,
               std::optional<int>& signal);

/// Ended by its Job because of others.
bool was_ended(const nlohmann::json& pod, const InstanceStatus& instance);

InstanceStatus instance_status(const nlohmann::json& pod);

/// Why the Pod failed, where it is not the program's own exit.
std::string pod_message(const nlohmann::json& pod);

/// The container whose log says how the Pod fares: one that failed to bring the code, or the main
/// one.
std::string telling_container(const nlohmann::json& pod);

} // namespace dtrain::kubernetes
