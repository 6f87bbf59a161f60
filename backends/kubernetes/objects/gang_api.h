// Which of a cluster's APIs makes a job start as a whole, and queues it.
//
//   --queue=Q                            Kueue admits the job: label kueue.x-k8s.io/queue-name, and
//                                        the job is created suspended, for Kueue to resume
//   --scheduler=volcano [--gang]         Volcano: a PodGroup of scheduling.volcano.sh/v1beta1, in
//         [--queue=Q]                    its queue Q
//   --scheduler=OTHER --gang             coscheduling (scheduler-plugins): a PodGroup of
//                                        scheduling.x-k8s.io/v1alpha1
//   --gang                               Volcano, where the cluster has it
//   volcanojob                           Volcano, unless --scheduler=OTHER
//
// The object depends on the job alone; whether the cluster has the API is checked before anything
// is created.
#pragma once

#include "submit/job_spec.h"

#include <string>
#include <vector>

namespace dtrain::kubernetes {

inline constexpr const char* k_volcano = "volcano";

enum class GangApi { none, volcano, coscheduling };

/// Whose PodGroup the job has, and of how many of its instances it waits for room.
GangApi gang_api(const JobSpec& job);
int gang_members(const JobSpec& job, int instances);

/// A volcanojob's scheduler is Volcano's where none is named.
void settle_scheduler(JobSpec& job);

/// Kueue's, and not Volcano's.
bool in_kueue(const JobSpec& job);

/// --gang says nothing of by whom: the cluster is asked.
bool chooses_scheduler(const JobSpec& job);

} // namespace dtrain::kubernetes
