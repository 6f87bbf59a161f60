#include "backends/kubernetes/objects/gang_api.h"

#include "backends/kubernetes/own_fields.h"
#include "submit/job_roles.h"

namespace dtrain::kubernetes {
namespace {

bool has_tasks(const JobSpec& job) { return find_job_type(job.type)->has_tasks; }

} // namespace

GangApi gang_api(const JobSpec& job) {
  if (own::scheduler(job) == k_volcano) {
    return job.gang || !job.queue.empty() || has_tasks(job) ? GangApi::volcano : GangApi::none;
  }
  return job.gang && !own::scheduler(job).empty() ? GangApi::coscheduling : GangApi::none;
}

int gang_members(const JobSpec& job, int instances) {
  return job.gang ? instances : own::min_available(job);
}

void settle_scheduler(JobSpec& job) {
  if (has_tasks(job) && own::scheduler(job).empty()) {
    own::scheduler(job) = k_volcano;
  }
}

bool in_kueue(const JobSpec& job) { return !job.queue.empty() && own::scheduler(job) != k_volcano; }

bool chooses_scheduler(const JobSpec& job) {
  return job.gang && own::scheduler(job).empty() && job.queue.empty();
}

} // namespace dtrain::kubernetes
