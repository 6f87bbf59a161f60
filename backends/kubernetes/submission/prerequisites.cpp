#include "backends/kubernetes/submission/prerequisites.h"

#include "backends/kubernetes/objects/gang_api.h"
#include "backends/kubernetes/objects/jobset.h"
#include "backends/kubernetes/objects/objects.h"
#include "backends/kubernetes/objects/trainjob.h"
#include "backends/kubernetes/own_fields.h"
#include "backends/kubernetes/render/volumes.h"
#include "backends/kubernetes/status/kueue.h"
#include "backends/support/bucket/bucket_copy.h"
#include "backends/support/user/env_file.h"
#include "submit/errors.h"

#include <fmt/format.h>

#include <algorithm>

namespace dtrain::kubernetes {
namespace {

using nlohmann::json;

constexpr const char* k_volcano_group = "scheduling.volcano.sh";
constexpr const char* k_volcano_version = "v1beta1";
constexpr const char* k_coscheduling_group = "scheduling.x-k8s.io";

/// Versions of an API group that the cluster serves, the preferred one first; none if it has no
/// such group.
std::vector<std::string> versions_of(ApiClient& api, const std::string& group) {
  const ApiResult found = api.call(api.request("GET", "/apis/" + group));
  if (found.status == k_not_found) {
    return {};
  }
  if (!found.ok()) {
    api.fail(found);
  }
  std::vector<std::string> versions = {text_at(found.body, "preferredVersion/version")};
  for (const json& each : member(found.body, "versions")) {
    versions.push_back(text_at(each, "version"));
  }
  return versions;
}

void require_version(ApiClient& api, const std::string& flag, const char* group,
                     const std::string& version, const char* what) {
  const std::vector<std::string> versions = versions_of(api, group);
  if (std::find(versions.begin(), versions.end(), version) == versions.end()) {
    throw UsageError(fmt::format(
        "{}: the cluster has no {} ({}/{}): install it, or {}", flag, what, group, version,
        flag.starts_with('-') ? "drop the flag" : "submit a job of another type"));
  }
}

void require_queue(ApiClient& api, const JobSpec& job) {
  const std::vector<std::string> versions = versions_of(api, k_kueue_group);
  if (versions.empty()) {
    throw UsageError(fmt::format(
        "--queue={}: the cluster has no Kueue ({}); for a queue of Volcano add --scheduler=volcano",
        printable(job.queue), k_kueue_group));
  }
  const ApiResult queue = api.call(api.request(
      "GET", fmt::format("/apis/{}/{}/namespaces/{}/localqueues/{}", k_kueue_group, versions[0],
                         escape_url(job.namespace_name), escape_url(job.queue))));
  // A user without the right to look sees it in the job's reason.
  if (queue.status == k_not_found) {
    throw UsageError(fmt::format("--queue={}: namespace {} has no LocalQueue of that name",
                                 printable(job.queue), job.namespace_name));
  }
}

/// Volcano's own; one that the cluster does not have would leave the job waiting without a word.
void require_volcano_queue(ApiClient& api, const JobSpec& job) {
  const ApiResult queue =
      api.call(api.request("GET", fmt::format("/apis/{}/{}/queues/{}", k_volcano_group,
                                              k_volcano_version, escape_url(job.queue))));
  if (queue.status == k_not_found && text_at(queue.body, "details/name") == job.queue) {
    throw UsageError(fmt::format("--queue={}: Volcano has no Queue ({}) of that name",
                                 printable(job.queue), k_volcano_group));
  }
}

void require(ApiClient& api, const std::string& namespace_name, const char* plural,
             const std::string& name, const std::string& what) {
  const ApiResult found = api.call(
      api.request("GET", fmt::format("/api/v1/namespaces/{}/{}/{}", escape_url(namespace_name),
                                     plural, escape_url(name))));
  if (found.status == k_not_found) {
    throw UsageError(fmt::format("{} of that name in namespace {}", what, namespace_name));
  }
}

} // namespace

std::vector<std::string> choose_scheduler(ApiClient& api, JobSpec& job) {
  if (!versions_of(api, k_volcano_group).empty()) {
    own::scheduler(job) = k_volcano;
    return {"--gang: Volcano starts all instances or none (--scheduler=volcano)"};
  }
  if (!versions_of(api, k_coscheduling_group).empty()) {
    throw UsageError(fmt::format("--gang: the cluster has coscheduling ({}); name its scheduler "
                                 "(--scheduler=scheduler-plugins-scheduler)",
                                 k_coscheduling_group));
  }
  throw UsageError(
      fmt::format("--gang: the cluster has neither Volcano ({}) nor coscheduling ({}); "
                  "Kueue admits a job whole with --queue=NAME",
                  k_volcano_group, k_coscheduling_group));
}

void require_apis(ApiClient& api, const JobSpec& job) {
  switch (gang_api(job)) {
  case GangApi::volcano:
    require_version(api, job.task_images.empty() ? "--scheduler=volcano" : "volcanojob",
                    k_volcano_group, k_volcano_version, "Volcano");
    if (!job.queue.empty()) {
      require_volcano_queue(api, job);
    }
    break;
  case GangApi::coscheduling:
    require_version(api, fmt::format("--gang --scheduler={}", printable(own::scheduler(job))),
                    k_coscheduling_group, "v1alpha1", "coscheduling PodGroups");
    break;
  case GangApi::none:
    break;
  }
  if (has_jobset(job)) {
    require_version(api, fmt::format("--api={}", own::api(job)), k_jobset_group, k_jobset_version,
                    "JobSet");
  }
  if (is_trainjob(job)) {
    require_version(api, "--api=trainjob", k_trainer_group, k_trainer_version, "Kubeflow Trainer");
  }
  if (in_kueue(job)) {
    require_queue(api, job);
  }
}

bool require_objects(ApiClient& api, const Plan& plan) {
  const std::string& where = plan.job.namespace_name;
  const std::vector<std::string> claims = claims_of(plan.job);
  std::vector<std::string> secrets = plan.job.secrets;
  std::erase_if(secrets, has_secret);
  for (const std::string& claim : claims) {
    require(api, where, "persistentvolumeclaims", claim,
            fmt::format("--data={}: no saved data and no claim", printable(claim)));
  }
  for (const std::string& name : secrets) {
    require(api, where, "secrets", name,
            fmt::format("--secret={}: no saved secret and no Secret", printable(name)));
  }
  const std::vector<Bucket> buckets = buckets_of(plan.job);
  for (const Bucket& bucket : buckets) {
    const BucketKeys keys = bucket_keys(bucket);
    if (keys.id.empty() && !secrets.empty()) {
      continue; // Only the cluster can know them.
    }
    try {
      require_bucket(bucket, keys);
    } catch (const EngineError&) {
      // A store inside the cluster is reached from there alone.
    }
  }
  return !claims.empty() || !secrets.empty() || !buckets.empty();
}

} // namespace dtrain::kubernetes
