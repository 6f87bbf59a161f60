#include "backends/kubernetes/submission/change_job.h"

#include "backends/kubernetes/objects/gang_api.h"
#include "backends/kubernetes/objects/jobset.h"
#include "backends/kubernetes/objects/objects.h"
#include "backends/kubernetes/objects/trainjob.h"
#include "backends/kubernetes/objects/yaml_json.h"
#include "backends/kubernetes/render/render.h"
#include "backends/kubernetes/status/kueue.h"
#include "backends/kubernetes/status/read_job.h"
#include "backends/kubernetes/status/status.h"
#include "submit/errors.h"
#include "submit/job_roles.h"

#include <fmt/format.h>

namespace dtrain::kubernetes {
namespace {

using nlohmann::json;

constexpr const char* k_suspend_manager = "dtrain-suspend";
constexpr const char* k_scale_manager = "dtrain-scale";

/// The job, which must not have ended.
JobObjects living_job(ApiClient& api, const JobRef& ref) {
  JobObjects objects = read_objects(api, ref);
  const JobSummary summary = summarize(objects);
  if (is_final(summary.phase)) {
    throw UsageError(
        fmt::format("job {} has already ended ({})", ref.name, phase_name(summary.phase)));
  }
  return objects;
}

/// The identity of `object` and nothing else. With the uid the apply fails if the object has been
/// deleted meanwhile, instead of creating it again.
json identity_of(const json& object, const std::string& version, const char* kind) {
  return {{"apiVersion", version},
          {"kind", kind},
          {"metadata",
           {{"name", object["metadata"]["name"]},
            {"namespace", object["metadata"]["namespace"]},
            {"uid", object["metadata"]["uid"]}}}};
}

std::string changed_path(const json& job) {
  return fmt::format("{}/{}", jobs_path(text_at(job, "metadata/namespace")),
                     escape_url(text_at(job, "metadata/name")));
}

std::string config_path_of(const JobRef& ref) {
  return fmt::format("/api/v1/namespaces/{}/configmaps/{}", escape_url(ref.namespace_name),
                     escape_url(ref.name));
}

JobSpec spec_in(const json& config, const JobRef& ref, const char* verb) {
  const std::string text = text_at(config, "data/" + std::string(k_spec_key));
  if (text.empty()) {
    throw UsageError(fmt::format(
        "job {} has no description, since an older dtrain submitted it; it cannot be {}", ref.name,
        verb));
  }
  return read_job_yaml(text, fmt::format("ConfigMap {}", ref.name));
}

/// The templates from which the job was made, not those that are here now.
Templates templates_in(const json& config, const JobSpec& spec) {
  Templates templates;
  templates.values = spec.template_values;
  for (const auto& [key, text] : member(config, "data").items()) {
    if (key.starts_with(k_template_key) && text.is_string()) {
      const std::string name = "kubernetes/" + key.substr(k_template_key.size());
      templates.own[name] = {fmt::format("job {}'s {}", spec.name, name), text.get<std::string>()};
    }
  }
  return templates;
}

json document_of(const Plan& plan, std::string_view name) {
  for (const Plan::Document& document : plan.documents) {
    if (document.name == name) {
      return yaml_documents(document.text, document.name).at(0);
    }
  }
  throw Error(fmt::format("the plan has no {}", name));
}

/// Changes the number of the job's Pods that start together.
void change_group(ApiClient& api, const json& group) {
  const std::string path =
      fmt::format("/apis/{}/namespaces/{}/podgroups/{}", text_at(group, "apiVersion"),
                  escape_url(text_at(group, "metadata/namespace")),
                  escape_url(text_at(group, "metadata/name")));
  api.must(api.merge(path, {{"spec", {{"minMember", group["spec"]["minMember"]}}}}));
}

} // namespace

bool set_suspended(ApiClient& api, const JobRef& ref, bool suspended) {
  JobObjects objects = living_job(api, ref);
  if (wants_queue(objects)) {
    read_queue(api, objects);
  }
  const Phase phase = status_of(objects).phase;
  if (suspended ? phase == Phase::suspended : !is_held_back(phase)) {
    return false;
  }
  if (!queue_of(objects).empty()) {
    set_active(api, objects, !suspended);
    return true;
  }
  if (is_of_trainjob(objects.set)) { // Whose controller would undo a change of the JobSet's.
    api.must(api.merge(trainjob_path(ref), {{"spec", {{"suspend", suspended}}}}));
    return true;
  }
  if (!objects.set.is_null()) {
    json change =
        identity_of(objects.set, fmt::format("{}/{}", k_jobset_group, k_jobset_version), "JobSet");
    change["spec"] = {{"suspend", suspended}};
    api.must(api.apply(jobset_path(ref), change, k_suspend_manager));
    return true;
  }
  for (const json* job : jobs_of(objects)) {
    json change = identity_of(*job, "batch/v1", "Job");
    change["spec"] = {{"suspend", suspended}};
    api.must(api.apply(changed_path(*job), change, k_suspend_manager));
  }
  return true;
}

void end_jobs(ApiClient& api, const JobList& jobs) {
  for (const json* job : jobs) {
    api.call(
        // Without this right one can only look.
        api.merge(changed_path(*job), {{"spec", {{"suspend", true}}}}));
  }
}

void end_left_over(ApiClient& api, const JobObjects& objects) {
  if (objects.set.is_null()) {
    end_jobs(api, left_over(objects));
  }
}

void scale_job(ApiClient& api, const JobRef& ref, int workers) {
  const JobObjects objects = living_job(api, ref);
  if (!objects.set.is_null()) {
    throw UsageError(fmt::format("job {} is a JobSet, which cannot be scaled", ref.name));
  }
  const json& job = objects.job;
  const std::string config_path = config_path_of(ref);
  const json config = api.must(api.request("GET", config_path));
  JobSpec spec = spec_in(config, ref, "scaled");
  if (job_roles(spec).back().name != k_worker) {
    throw UsageError(
        fmt::format("job {} has roles ranked after its workers, so it cannot be scaled", ref.name));
  }
  spec.workers = workers;
  const Plan plan = render_plan(resolve(spec), templates_in(config, spec));
  const json rendered = document_of(plan, k_config_document);
  json change = identity_of(config, "v1", "ConfigMap");
  for (const char* key : {"data", "binaryData"}) {
    if (rendered.contains(key)) {
      change[key] = rendered[key];
    }
  }
  // More ranks must find the new environment; fewer may leave the old one a moment longer.
  api.must(api.apply(config_path, change, k_scale_manager));
  if (gang_api(spec) != GangApi::none) {
    change_group(api, document_of(plan, k_group_document));
  }
  change = identity_of(job, "batch/v1", "Job");
  const json counts = document_of(plan, k_job_document);
  change["spec"] = {{"completions", counts["spec"]["completions"]},
                    {"parallelism", counts["spec"]["parallelism"]}};
  api.must(api.apply(job_path(ref), change, k_scale_manager));
}

JobSpec submitted_spec(ApiClient& api, const JobRef& ref) {
  read_job(api, ref); // Throws NotFound of the job, not of its ConfigMap.
  return spec_in(api.must(api.request("GET", config_path_of(ref))), ref, "cloned");
}

} // namespace dtrain::kubernetes
