// Why a job is not running: one sentence, in the cluster's own words.
#pragma once

#include "backends/kubernetes/status/status.h"

#include <string>

namespace dtrain::kubernetes {

/// Empty where the objects do not say. Looks, in this order, at: suspension (kueue.h); a TrainJob
/// that has no JobSet yet; a container that cannot start (image, configuration); the scheduler's
/// verdict; why the Job cannot make Pods (quota, admission); volumes that cannot be mounted; a lost
/// node; one that has been silent since its lease was due. Says in words of its own which it is: no
/// image, no volume, no node that matches, all that match in use, a quota.
std::string why_pending(const JobObjects& objects);

/// The failed Job's condition in a sentence: "DeadlineExceeded: Job was active longer than…".
std::string why_failed(const JobObjects& objects);

} // namespace dtrain::kubernetes
