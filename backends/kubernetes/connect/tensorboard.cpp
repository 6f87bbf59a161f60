#include "backends/kubernetes/connect/tensorboard.h"

#include "backends/kubernetes/connect/port_forward.h"
#include "backends/kubernetes/objects/objects.h"
#include "backends/kubernetes/own_fields.h"
#include "backends/kubernetes/render/pod_roles.h"
#include "backends/kubernetes/render/template_data.h"
#include "backends/kubernetes/render/volumes.h"
#include "backends/kubernetes/status/read_job.h"
#include "submit/errors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

namespace dtrain::kubernetes {
namespace {

using nlohmann::json;

constexpr int k_port = 6006; ///< TensorBoard's own; of its Pod, not of this machine.
constexpr std::size_t k_longest_name = 63;

std::string board_name(const std::string& job) { return job + "-tensorboard"; }

bool is_within(const std::string& folder, const std::string& mount) {
  return folder == mount || folder.starts_with(mount.ends_with('/') ? mount : mount + "/");
}

bool is_ready(const json& pod) {
  return member(pod, "metadata/deletionTimestamp").is_null() && has_condition(pod, "Ready");
}

/// Why its Pod is not ready, in the cluster's words; empty where it does not say.
std::string why_not(const json& pod) {
  for (const json& container : member(pod, "status/containerStatuses")) {
    for (const char* state : {"state/waiting", "state/terminated", "lastState/terminated"}) {
      const std::string reason = text_at(container, std::string(state) + "/reason");
      if (!reason.empty()) {
        const std::string message = text_at(container, std::string(state) + "/message");
        return printable(message.empty() ? reason : fmt::format("{}: {}", reason, message));
      }
    }
  }
  const json& scheduled = condition(pod, "PodScheduled");
  return text_at(scheduled, "status") == "False" ? printable(text_at(scheduled, "message")) : "";
}

PodPort find_board(ApiClient& api, const JobRef& job) {
  const auto pods = api.list(pods_path(job.namespace_name),
                             {{"labelSelector", fmt::format("{}={}", k_board_label, job.name)}});
  std::string why;
  for (const json& pod : pods.items) {
    if (is_ready(pod)) {
      return {job.namespace_name, text_at(pod, "metadata/name"), k_port};
    }
    why = why_not(pod);
  }
  throw EngineError(fmt::format("TensorBoard of job {} is not running{}", printable(job.name),
                                why.empty() ? " yet" : ": " + why));
}

} // namespace

std::string board_url(const JobSpec& job) {
  return fmt::format("http://{}.{}:{}", board_name(job.name), job.namespace_name, k_port);
}

void add_board(const JobSpec& job, const Templates& templates, Plan& plan) {
  const std::string name = board_name(job.name);
  if (name.size() > k_longest_name) {
    throw UsageError(fmt::format("--name={}: use at most {} characters with --tensorboard on "
                                 "Kubernetes, so that the Service name {} fits into {}",
                                 job.name, k_longest_name - (name.size() - job.name.size()), name,
                                 k_longest_name));
  }
  const std::string& image = own::tensorboard_image(job);
  json data = {{"name", job.name},
               {"namespace", job.namespace_name},
               {"board", name},
               {"image", image.empty() ? pod_roles(job)[0].image : image},
               {"logdir_flag", "--logdir=" + job.logdir}};
  add_rights(job, data);
  add_volumes(job, data);
  const json& mounts = data["mounts"];
  data["has_mounts"] = !mounts.empty();
  const bool is_shared = std::any_of(mounts.begin(), mounts.end(), [&](const json& mount) {
    return is_within(job.logdir, text_at(mount, "path"));
  });
  if (!is_shared) {
    plan.notices.push_back(
        fmt::format("--logdir={}: not on a volume of the job, so TensorBoard's Pod cannot see what "
                    "ranks write there; mount one with --data",
                    printable(job.logdir)));
  }
  plan.documents.push_back(
      {"tensorboard.yaml", render_document(templates, "tensorboard.yaml", data)});
}

int forward_board(ApiClient& api, const JobRef& job, int port,
                  const std::function<void(const std::string& url)>& opened) {
  if (annotation(read_job(api, job), k_board_annotation).empty()) {
    throw UsageError(fmt::format("job {} has no TensorBoard: submit it with --tensorboard",
                                 printable(job.name)));
  }
  find_board(api, job); // Before a port is opened that leads nowhere.
  return forward_port(
      api, port,
      {.target = [&] { return find_board(api, job); },
       .opened = [&](int bound) { opened(fmt::format("http://127.0.0.1:{}", bound)); },
       .warned =
           [](const std::string& what) { fmt::print(stderr, "dtrain tensorboard: {}\n", what); }});
}

} // namespace dtrain::kubernetes
