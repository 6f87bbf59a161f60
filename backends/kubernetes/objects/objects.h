// Names of this backend's objects, and functions to read them.
//
//   Job        NAME-worker      one Pod per instance; owns the others
//   Job        NAME-launcher    in types with a launcher: its Pod
//   Job        NAME-chief, -ps  for roles with other resources than the workers, and for a
//                               volcanojob's tasks after the first, NAME-task-1: render/job_data.h
//   Service    NAME             headless: rank I answers to NAME-worker-I.NAME
//   ConfigMap  NAME             start.sh (environment and command) and the host file
//   Secret     NAME             the token that ranks prove to one another
//
// All carry the labels below; `list` selects on them.
#pragma once

#include "backends/job_status.h"

#include <nlohmann/json_fwd.hpp>

#include <memory>
#include <string>
#include <string_view>

namespace dtrain::kubernetes {

inline constexpr const char* k_manager_label = "app.kubernetes.io/managed-by";
inline constexpr const char* k_manager = "dtrain";
inline constexpr const char* k_job_label = "dtrain/job";
inline constexpr const char* k_type_label = "dtrain/type";        ///< "TFJOB"
inline constexpr const char* k_role_label = "dtrain/role";        ///< On all Jobs except the owner.
inline constexpr const char* k_roles_annotation = "dtrain/roles"; ///< "chief=1,worker=3"
/// "all" on the first instance's Job where its success alone is not the job's, and on tasks'.
inline constexpr const char* k_success_annotation = "dtrain/success";
inline constexpr const char* k_index_label = "batch.kubernetes.io/job-completion-index";
inline constexpr const char* k_owner_uid_label = "batch.kubernetes.io/controller-uid";
inline constexpr const char* k_failure_count_annotation =
    "batch.kubernetes.io/job-index-failure-count";
inline constexpr const char* k_queue_label = "kueue.x-k8s.io/queue-name";
inline constexpr const char* k_queue_annotation = "dtrain/queue"; ///< On a TrainJob's JobSet.
inline constexpr const char* k_gpu_resource = "nvidia.com/gpu";
inline constexpr const char* k_worker_role = "worker";
inline constexpr const char* k_container = "main";

/// An object of the API.
using ObjectPtr = std::shared_ptr<nlohmann::json>;

/// Whether it is the role of a first instance with a Job of its own: "launcher", "chief", "master".
bool is_lead_role(std::string_view role);

/// The role's Job, or a Pod's host name without its index: "NAME-worker".
std::string role_job_name(std::string_view job, std::string_view role);

/// labelSelector for one job's objects; for all of ours where `job` is empty.
std::string selector_of(std::string_view job);
std::string selector_of(const std::vector<std::string>& jobs); ///< At least one of several.

/// "/apis/batch/v1/namespaces/NAME/jobs"; of all namespaces where that is empty.
std::string collection_path(std::string_view api, std::string_view namespace_name,
                            std::string_view plural);

std::string jobs_path(std::string_view namespace_name); ///< All namespaces if empty.
std::string job_path(const JobRef& job);                ///< The Job that owns the rest.
std::string pods_path(std::string_view namespace_name);
std::string events_path(std::string_view namespace_name);
std::string lease_path(std::string_view node); ///< The lease that its kubelet renews; empty: all.

/// The member at `path` ("status/startTime"), or null. For objects read from the API, whose
/// members may all be absent.
const nlohmann::json& member(const nlohmann::json& object, std::string_view path);

/// That member as a string or number, or the fallback if it is absent or of another type.
std::string text_at(const nlohmann::json& object, std::string_view path);
std::int64_t number_at(const nlohmann::json& object, std::string_view path,
                       std::int64_t fallback = 0);

/// The object's condition of this type, or null; and whether it is true.
const nlohmann::json& condition(const nlohmann::json& object, std::string_view type);
bool has_condition(const nlohmann::json& object, std::string_view type);

/// A label's or annotation's value, whose key may hold slashes.
std::string label(const nlohmann::json& object, std::string_view key);
std::string annotation(const nlohmann::json& object, std::string_view key);

/// RFC 3339 in UTC, with or without a fraction. 0 where it is not that.
Time parse_time(std::string_view text);

/// HTTP's, in lower case: "sun, 22 nov 2026 12:00:00 gmt". 0 where it is not that.
Time parse_http_date(const std::string& text);

/// The uid of a Pod's Job, and of the Job that owns a launcher's.
std::string owner_uid(const nlohmann::json& pod);
std::string root_uid(const nlohmann::json& launcher_job);

/// A Pod's place in its Job; -1 where it has none.
int index_of(const nlohmann::json& pod);

/// The instance in that place of a Job or Pod, "ps-0", by the roles annotation.
std::string instance_of(const nlohmann::json& object, int index);
std::string instance_of(const nlohmann::json& pod);

/// GPUs that a Pod of this template asks for.
int gpus_of(const nlohmann::json& pod_spec);

} // namespace dtrain::kubernetes
