// A job in a queue of Kueue's (--queue).
//
// Kueue makes a Workload (kueue.x-k8s.io/v1beta1) of each Job, or of a JobSet or TrainJob as a
// whole, labelled with that object's uid. Its conditions say why it waits. Its `active` is what
// suspends and resumes it: Kueue undoes what others write to the Job's own `suspend`. In which
// position it waits is computed by Kueue's visibility server (visibility.kueue.x-k8s.io/v1beta1),
// when asked.
#pragma once

#include "backends/kubernetes/api/api_client.h"
#include "backends/kubernetes/status/status.h"

#include <string>

namespace dtrain::kubernetes {

inline constexpr const char* k_kueue_group = "kueue.x-k8s.io";

/// The reason of a job that waits for `dtrain resume`.
inline constexpr const char* k_suspended = "suspended";

/// For a Job or JobSet alone.
bool is_in_queue(const nlohmann::json& root);

/// The queue's name; empty: none.
std::string queue_of(const JobObjects& objects);

/// Whether the queue could say more about why this job does not run.
bool wants_queue(const JobObjects& objects);

/// Which Workloads are the job's: where they are listed and watched.
std::string workloads_path(std::string_view namespace_name);
Query workloads_query(const JobObjects& objects);

/// Reads objects.workloads and objects.positions, both at once. Who may not read one of them, or
/// has no visibility server, is told less.
void read_queue(ApiClient& api, JobObjects& objects);

/// "waiting for its turn in the queue team, position 2: couldn't assign flavors to pod set worker:
/// insufficient unused quota for nvidia.com/gpu in flavor h200, 2 more needed"; "suspended" where a
/// person did it, or the job is in no queue. Pure.
std::string why_suspended(const JobObjects& objects);

/// Suspends or resumes a job that is in a queue. Throws EngineError where Kueue makes no Workload
/// of it within k_longest_for_workload.
void set_active(ApiClient& api, const JobObjects& objects, bool active);

} // namespace dtrain::kubernetes
