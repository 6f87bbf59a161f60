#include "backends/kubernetes/objects/gang_api.h"

namespace dtrain::kubernetes {

GangApi gang_api(const JobSpec& job) {
  if (job.scheduler == k_volcano) {
    return job.gang || !job.queue.empty() ? GangApi::volcano : GangApi::none;
  }
  return job.gang && !job.scheduler.empty() ? GangApi::coscheduling : GangApi::none;
}

bool in_kueue(const JobSpec& job) { return !job.queue.empty() && job.scheduler != k_volcano; }

bool chooses_scheduler(const JobSpec& job) {
  return job.gang && job.scheduler.empty() && job.queue.empty();
}

} // namespace dtrain::kubernetes
