#include "backends/kubernetes/objects/trainjob.h"

#include "backends/kubernetes/api/api_client.h"
#include "backends/kubernetes/objects/objects.h"
#include "backends/kubernetes/own_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>

namespace dtrain::kubernetes {
namespace {

using nlohmann::json;

constexpr const char* k_ancestor_label = "trainer.kubeflow.org/trainjob-ancestor-step";

json object_of(const char* kind, const json& set) {
  const json& metadata = set["metadata"];
  json object = {{"apiVersion", fmt::format("{}/{}", k_trainer_group, k_trainer_version)},
                 {"kind", kind},
                 {"metadata", {{"name", metadata["name"]}, {"namespace", metadata["namespace"]}}}};
  for (const char* key : {"labels", "annotations"}) {
    if (metadata.contains(key)) {
      object["metadata"][key] = metadata[key];
    }
  }
  return object;
}

std::string trainer_path(std::string_view namespace_name, const char* plural) {
  return collection_path(fmt::format("/apis/{}/{}", k_trainer_group, k_trainer_version),
                         namespace_name, plural);
}

} // namespace

bool is_trainjob(const JobSpec& job) { return own::api(job) == "trainjob"; }

json trainjob_of(const json& set) {
  json trainjob = object_of(k_trainjob, set);
  trainjob["spec"]["runtimeRef"] = {{"apiGroup", k_trainer_group},
                                    {"kind", k_training_runtime},
                                    {"name", set["metadata"]["name"]}};
  if (set["spec"].contains("suspend")) {
    trainjob["spec"]["suspend"] = set["spec"]["suspend"];
  }
  return trainjob;
}

json training_runtime_of(const json& set) {
  json runtime = object_of(k_training_runtime, set);
  json part = {{"metadata", json::object()}, {"spec", set["spec"]}};
  for (const char* key : {"labels", "annotations"}) {
    if (runtime["metadata"].contains(key)) {
      part["metadata"][key] = runtime["metadata"][key];
    }
  }
  // A queue takes the TrainJob; its JobSet tells which.
  const std::string queue = label(set, k_queue_label);
  if (!queue.empty()) {
    part["metadata"]["annotations"][k_queue_annotation] = queue;
  }
  part["metadata"]["labels"].erase(k_queue_label);
  runtime["metadata"]["labels"].erase(k_queue_label);
  part["spec"].erase("suspend");
  for (json& role : part["spec"]["replicatedJobs"]) {
    if (role["name"] == k_worker_role) {
      role["template"]["metadata"]["labels"][k_ancestor_label] = "trainer";
      runtime["spec"]["mlPolicy"]["numNodes"] = role["template"]["spec"]["completions"];
    }
  }
  runtime["spec"]["template"] = std::move(part);
  return runtime;
}

bool is_of_trainjob(const json& set) {
  const json& owners = member(set, "metadata/ownerReferences");
  return !owners.empty() && text_at(owners[0], "kind") == k_trainjob;
}

json set_to_be(const json& trainjob, const json& runtime) {
  json set = {{"metadata", trainjob["metadata"]},
              {"spec", member(runtime, "spec/template/spec")},
              {"status", {{"conditions", member(trainjob, "status/conditions")}}}};
  set["metadata"]["ownerReferences"] =
      json::array({{{"kind", k_trainjob}, {"uid", text_at(trainjob, "metadata/uid")}}});
  const json& suspend = member(trainjob, "spec/suspend");
  set["spec"]["suspend"] = suspend.is_boolean() && suspend.get<bool>();
  return set;
}

bool is_to_be(const json& set) {
  return is_of_trainjob(set) &&
         text_at(set, "metadata/ownerReferences/0/uid") == text_at(set, "metadata/uid");
}

std::vector<json> without_set(const std::vector<json>& trainjobs, const std::vector<json>& sets) {
  std::set<std::string> owners;
  for (const json& set : sets) {
    owners.insert(text_at(set, "metadata/ownerReferences/0/uid"));
  }
  std::vector<json> without;
  std::copy_if(
      trainjobs.begin(), trainjobs.end(), std::back_inserter(without),
      [&](const json& trainjob) { return !owners.contains(text_at(trainjob, "metadata/uid")); });
  return without;
}

std::vector<json> sets_to_be(const std::vector<json>& trainjobs, const json& runtimes) {
  std::vector<json> sets;
  for (const json& trainjob : trainjobs) {
    for (const json& runtime : runtimes) {
      if (text_at(runtime, "metadata/namespace") == text_at(trainjob, "metadata/namespace") &&
          text_at(runtime, "metadata/name") == text_at(trainjob, "metadata/name")) {
        sets.push_back(set_to_be(trainjob, runtime));
      }
    }
  }
  return sets;
}

std::string trainjobs_path(std::string_view namespace_name) {
  return trainer_path(namespace_name, "trainjobs");
}

std::string trainjob_path(const JobRef& job) {
  return fmt::format("{}/{}", trainjobs_path(job.namespace_name), escape_url(job.name));
}

std::string training_runtimes_path(std::string_view namespace_name) {
  return trainer_path(namespace_name, "trainingruntimes");
}

std::string training_runtime_path(const JobRef& job) {
  return fmt::format("{}/{}", training_runtimes_path(job.namespace_name), escape_url(job.name));
}

} // namespace dtrain::kubernetes
