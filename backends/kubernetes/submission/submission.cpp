#include "backends/kubernetes/submission/submission.h"

#include "backends/kubernetes/objects/jobset.h"
#include "backends/kubernetes/objects/objects.h"
#include "backends/kubernetes/objects/trainjob.h"
#include "backends/kubernetes/objects/yaml_json.h"
#include "backends/kubernetes/render/job_secrets.h"
#include "backends/kubernetes/render/render.h"
#include "backends/kubernetes/status/read_job.h"
#include "backends/kubernetes/submission/code_parts.h"
#include "backends/kubernetes/submission/prerequisites.h"
#include "backends/kubernetes/submission/ssh_key.h"
#include "backends/support/os/random.h"
#include "backends/support/os/signal_fd.h"
#include "backends/support/progress.h"
#include "submit/errors.h"
#include "submit/job_roles.h"
#include "submit/text/base64.h"
#include "submit/text/lower_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <map>

namespace dtrain::kubernetes {
namespace {

using nlohmann::json;

constexpr std::size_t k_token_bytes = 32;

/// Adds values generated now: the ranks' token, and the keys by which a launcher and its workers
/// know one another.
void add_secrets(json& secrets, bool has_launcher) {
  secrets["token"] = random_hex(k_token_bytes);
  if (has_launcher) {
    const SshKey own = make_ssh_key();
    const SshKey host = make_ssh_key();
    secrets["ssh-key"] = own.private_text;
    secrets["ssh-authorized-keys"] = own.public_text + "\n";
    secrets["ssh-host-key"] = host.private_text;
    secrets["ssh-known-hosts"] = "* " + host.public_text + "\n";
  }
}

/// The collection that an object is created in.
std::string collection_of(const json& object) {
  static const std::map<std::string, std::string> k_plurals = {
      {"Job", "jobs"},
      {"JobSet", "jobsets"},
      {"Service", "services"},
      {"ConfigMap", "configmaps"},
      {"Secret", "secrets"},
      {"Deployment", "deployments"},
      {"PodGroup", "podgroups"},
      {k_trainjob, "trainjobs"},
      {k_training_runtime, "trainingruntimes"}};
  std::string kind = text_at(object, "kind");
  std::string version = text_at(object, "apiVersion");
  auto plural = k_plurals.find(kind);
  if (plural == k_plurals.end()) {
    throw UsageError(fmt::format("a template makes an object of kind {}; use only Job, JobSet, "
                                 "Service, ConfigMap, Secret, Deployment and PodGroup",
                                 printable(kind)));
  }
  return fmt::format("{}/{}/namespaces/{}/{}",
                     version.find('/') == std::string::npos ? "/api" : "/apis", version,
                     escape_url(text_at(object, "metadata/namespace")), plural->second);
}

std::string object_path(const json& object) {
  return collection_of(object) + "/" + escape_url(text_at(object, "metadata/name"));
}

/// The plan's documents as objects, the one that owns the others first.
std::vector<json> objects_of(const Plan& plan) {
  std::vector<json> objects;
  for (const Plan::Document& document : plan.documents) {
    for (json& object : yaml_documents(document.text, document.name)) {
      objects.push_back(std::move(object));
    }
  }
  const std::string root = objects.empty() ? "" : text_at(objects[0], "kind");
  if (root != "Job" && root != "JobSet" && root != k_trainjob) {
    throw UsageError("the templates' first object must be the Job, which owns the others");
  }
  return objects;
}

json owned_by(const json& job) {
  return json::array({{{"apiVersion", job["apiVersion"]},
                       {"kind", job["kind"]},
                       {"name", job["metadata"]["name"]},
                       {"uid", job["metadata"]["uid"]},
                       {"controller", false},
                       {"blockOwnerDeletion", false}}});
}

/// Adds what is known only once the owner exists.
void adopt(json& object, const json& job, bool of_several_jobs) {
  object["metadata"]["ownerReferences"] = owned_by(job);
  if (text_at(object, "kind") != "Service" || !object["spec"]["selector"].contains(k_job_label)) {
    return;
  }
  if (text_at(job, "kind") == k_trainjob) {
    return; // Whose JobSet's uid is not known yet.
  }
  if (text_at(job, "kind") == "JobSet") {
    object["spec"]["selector"][k_jobset_uid_label] = job["metadata"]["uid"];
  } else if (!of_several_jobs) {
    // A job of the same name that was just deleted may have Pods that are still ending. Those of
    // several Jobs have several owners.
    object["spec"]["selector"][k_owner_uid_label] = job["metadata"]["uid"];
  }
}

[[noreturn]] void throw_name_taken(ApiClient& api, const json& object, const JobSpec& job) {
  ApiResult existing = api.call(api.request("GET", object_path(object)));
  std::string kind = text_at(object, "kind");
  std::string object_name = text_at(object, "metadata/name");
  if (existing.ok() && is_ours(existing.body) && (kind == "JobSet" || kind == k_trainjob)) {
    if (kind == k_trainjob) {
      existing.body = read_set(api, {job.namespace_name, job.name});
    }
    existing.body = job_in_set(existing.body, k_worker_role, {});
    kind = "Job";
  }
  if (existing.ok() && is_ours(existing.body) && kind == "Job") {
    throw UsageError(fmt::format("job {} exists in namespace {} ({}): choose another name, or "
                                 "`dtrain delete {}` first",
                                 job.name, job.namespace_name,
                                 phase_name(summarize(existing.body).phase), job.name));
  }
  if (existing.ok() && is_ours(existing.body)) {
    throw UsageError(
        fmt::format("{} {} exists in namespace {} and is job {}'s: choose another name", kind,
                    object_name, job.namespace_name, printable(label(existing.body, k_job_label))));
  }
  throw UsageError(fmt::format("{} {} exists in namespace {} and is not dtrain's: choose another "
                               "name",
                               kind, object_name, job.namespace_name));
}

/// Whether the first of an object's owners is gone: there is none with its name, or another one.
bool is_owner_gone(ApiClient& api, const json& object) {
  const json& owners = member(object, "metadata/ownerReferences");
  if (!owners.is_array() || owners.empty()) {
    return false;
  }
  json owner = owners[0];
  const std::string kind = text_at(owner, "kind");
  if (kind != "Job" && kind != "JobSet" && kind != k_trainjob) {
    return false;
  }
  owner["metadata"] = {{"name", text_at(owner, "name")},
                       {"namespace", text_at(object, "metadata/namespace")}};
  const ApiResult found = api.call(api.request("GET", object_path(owner)));
  return found.status == k_not_found ||
         (found.ok() && text_at(found.body, "metadata/uid") != text_at(owner, "uid"));
}

/// A dependent of a deleted job that the garbage collector has not come to.
bool remove_leftover(ApiClient& api, const json& object) {
  ApiResult existing = api.call(api.request("GET", object_path(object)));
  if (existing.status == k_not_found) {
    return true;
  }
  return existing.ok() && is_ours(existing.body) && is_owner_gone(api, existing.body) &&
         api.call(api.remove(object_path(object), text_at(existing.body, "metadata/uid"))).ok();
}

/// A TrainJob's runtime, which is there before it; null where the plan has none.
json make_runtime(ApiClient& api, const std::vector<json>& objects, const JobSpec& job) {
  const auto runtime = std::find_if(objects.begin(), objects.end(), [](const json& object) {
    return text_at(object, "kind") == k_training_runtime;
  });
  if (runtime == objects.end()) {
    return {};
  }
  ApiResult made = api.call(api.create(collection_of(*runtime), *runtime));
  if (made.status == k_conflict) {
    const JobRef ref = {job.namespace_name, job.name};
    const ApiResult existing = api.call(api.request("GET", object_path(*runtime)));
    if (api.call(api.request("GET", trainjob_path(ref))).status != k_not_found) {
      throw_name_taken(api, objects[0], job);
    }
    // Left by a submission that was cut off, or by a job just deleted.
    if (!existing.ok() || !is_ours(existing.body) ||
        !api.call(api.remove(object_path(*runtime), text_at(existing.body, "metadata/uid"))).ok()) {
      throw_name_taken(api, *runtime, job);
    }
    made = api.call(api.create(collection_of(*runtime), *runtime));
  }
  if (!made.ok()) {
    api.fail(made);
  }
  return std::move(made.body);
}

/// Creates the owner of all others, suspended.
json make_owner(ApiClient& api, const json& owner, const json& runtime, const JobSpec& job) {
  ApiResult made = api.call(api.create(collection_of(owner), owner));
  if (made.ok()) {
    return std::move(made.body);
  }
  if (!runtime.is_null()) {
    api.call(api.remove(object_path(runtime), text_at(runtime, "metadata/uid")));
  }
  if (made.status == k_conflict) {
    throw_name_taken(api, owner, job);
  }
  api.fail(made);
}

/// Takes back what `job` owns, since nothing of it ran. Adds to `error`, which is why, where that
/// cannot be done.
[[noreturn]] void take_back(ApiClient& api, const json& job, const Error& error) {
  std::string problem;
  try {
    const ApiResult removed = api.call(api.remove(object_path(job), text_at(job, "metadata/uid")));
    problem = removed.ok() || removed.status == k_not_found ? "" : removed.message();
  } catch (const Error& second) {
    problem = second.what();
  }
  if (problem.empty()) {
    throw; // `error`, as it was.
  }
  throw EngineError(fmt::format("{}; the job is left suspended, since it cannot be deleted ({}): "
                                "`dtrain delete {}`",
                                error.what(), problem, label(job, k_job_label)));
}

/// Objects that kubectl created from a dry run have no owner, so each is deleted by itself: the
/// ConfigMap, by which such a job is known, after the others, and before the Job.
void remove_ownerless(ApiClient& api, const JobRef& ref, const json& job) {
  const auto is_ownerless = [](const json& object) {
    return is_ours(object) && member(object, "metadata/ownerReferences").empty();
  };
  const auto core = [&ref](std::string_view plural) {
    return collection_path("/api/v1", ref.namespace_name, plural);
  };
  const std::string config = core("configmaps") + "/" + escape_url(ref.name);
  const ApiResult found = api.call(api.request("GET", config));
  if (!found.ok() || !is_ownerless(found.body) || label(found.body, k_job_label) != ref.name) {
    return;
  }
  const std::vector<std::string> paths = {
      core("services"),
      core("secrets"),
      jobs_path(ref.namespace_name),
      collection_path("/apis/apps/v1", ref.namespace_name, "deployments"),
      collection_path("/apis/scheduling.volcano.sh/v1beta1", ref.namespace_name, "podgroups"),
      collection_path("/apis/scheduling.x-k8s.io/v1alpha1", ref.namespace_name, "podgroups")};
  std::vector<HttpRequest> listings;
  listings.reserve(paths.size());
  for (const std::string& path : paths) {
    listings.push_back(api.request("GET", path, {{"labelSelector", selector_of(ref.name)}}));
  }
  const std::vector<ApiResult> listed = api.call_all(std::move(listings));
  std::vector<HttpRequest> removals;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    if (listed[i].status == k_not_found) { // The cluster has no such API.
      continue;
    }
    if (!listed[i].ok()) {
      api.fail(listed[i]);
    }
    for (const json& object : member(listed[i].body, "items")) {
      const std::string uid = text_at(object, "metadata/uid");
      if (is_ownerless(object) && uid != text_at(job, "metadata/uid")) {
        removals.push_back(api.remove(
            fmt::format("{}/{}", paths[i], escape_url(text_at(object, "metadata/name"))), uid));
      }
    }
  }
  std::vector<ApiResult> removed = api.call_all(std::move(removals));
  removed.push_back(api.call(api.remove(config, text_at(found.body, "metadata/uid"))));
  for (const ApiResult& result : removed) {
    if (!result.ok() && result.status != k_not_found) {
      api.fail(result);
    }
  }
}

} // namespace

void create_objects(ApiClient& api, const Plan& plan, const SubmitSink& tell) {
  report(tell, {.step = SubmitStep::check});
  std::vector<json> objects = objects_of(plan);
  const bool has_launcher = find_job_type(plan.job.type)->has_launcher;
  const auto of_jobs = std::count_if(objects.begin(), objects.end(), [](const json& object) {
    return text_at(object, "kind") == "Job";
  });
  const std::map<std::string, std::string> contents = secret_contents(plan);
  const bool needs = require_objects(api, plan);
  require_apis(api, plan.job);
  report(tell, {.step = SubmitStep::check,
                .done = true,
                .text = fmt::format("{} objects for {}{}", objects.size(), api.access().server.url,
                                    needs ? ", and what they need exists" : "")});
  const bool sends_code = plan.job.sync_mode == k_sync_folder;
  report(tell, {.step = sends_code ? SubmitStep::upload : SubmitStep::create});
  CodeArchive code;
  if (sends_code) {
    code = pack_code(plan.job, tell);
    mount_parts(objects, code);
  }
  const bool queued = is_suspended(objects[0]); // Then the queue lets it run.
  objects[0]["spec"]["suspend"] = true;
  // From here to the last request signals wait, so that what has been created can be removed.
  const SignalFd signals({SIGINT, SIGTERM, SIGHUP});
  const auto require_wanted = [&signals] {
    if (const int signal = signals.take(); signal != 0) {
      throw Interrupted("interrupted; nothing was submitted", signal);
    }
  };
  const SubmitSink tell_wanted = [&](const SubmitProgress& progress) {
    require_wanted();
    report(tell, progress);
  };
  const json runtime = make_runtime(api, objects, plan.job);
  const json job = make_owner(api, objects[0], runtime, plan.job);
  try {
    if (sends_code) {
      report(tell, {.step = SubmitStep::upload,
                    .done = true,
                    .text = store_parts(api, plan.job, code, owned_by(job).at(0), tell_wanted)});
      report(tell, {.step = SubmitStep::create});
    }
    std::vector<HttpRequest> requests;
    for (std::size_t i = 1; i < objects.size(); ++i) {
      if (text_at(objects[i], "kind") == k_training_runtime) {
        requests.push_back(
            api.merge(object_path(runtime), {{"metadata", {{"ownerReferences", owned_by(job)}}}}));
        continue;
      }
      adopt(objects[i], job, of_jobs > 1);
      if (text_at(objects[i], "kind") == "Secret") {
        objects[i].erase("stringData"); // Shown in the plan.
        for (const auto& [key, content] : contents) {
          objects[i]["data"][key] = base64_encode(content);
        }
        add_secrets(objects[i]["stringData"], has_launcher);
      }
      requests.push_back(api.create(collection_of(objects[i]), objects[i]));
    }
    std::vector<ApiResult> results = api.call_all(std::move(requests));
    for (std::size_t i = 0; i < results.size(); ++i) {
      const json& object = objects[i + 1];
      if (results[i].status == k_conflict && remove_leftover(api, object)) {
        results[i] = api.call(api.create(collection_of(object), object));
      }
      if (results[i].status == k_conflict) {
        throw_name_taken(api, object, plan.job);
      }
      if (!results[i].ok()) {
        api.fail(results[i]);
      }
    }
    require_wanted();
    if (!queued) {
      api.must(api.merge(object_path(job), {{"spec", {{"suspend", false}}}}));
    }
    report(tell, {.step = SubmitStep::create,
                  .done = true,
                  .text = fmt::format("{} objects in namespace {}", objects.size(),
                                      plan.job.namespace_name)});
  } catch (const Error& error) {
    take_back(api, job, error);
  }
}

std::vector<Plan::Document> try_objects(ApiClient& api, const Plan& plan) {
  secret_contents(plan); // Throws where a file is not there.
  require_objects(api, plan);
  require_apis(api, plan.job);
  std::vector<Plan::Document> stored;
  for (const json& object : objects_of(plan)) {
    if (text_at(object, "kind") == k_trainjob) { // Refused while its runtime is not there.
      stored.push_back({"trainjob.json", object.dump(2) + "\n"});
      continue;
    }
    ApiResult result = api.call(api.create(collection_of(object), object, true));
    if (result.status == k_conflict) {
      throw_name_taken(api, object, plan.job);
    }
    if (!result.ok()) {
      api.fail(result);
    }
    result.body["metadata"].erase("managedFields");
    stored.push_back({lower_case(text_at(object, "kind")) + ".json", result.body.dump(2) + "\n"});
  }
  return stored;
}

void remove_objects(ApiClient& api, const JobRef& ref) {
  const json job = read_job(api, ref);
  remove_ownerless(api, ref, job);
  ApiResult removed = api.call(api.remove(object_path(job), text_at(job, "metadata/uid")));
  if (removed.status == k_not_found) {
    throw_no_such_job(ref);
  }
  if (!removed.ok()) {
    api.fail(removed);
  }
}

} // namespace dtrain::kubernetes
