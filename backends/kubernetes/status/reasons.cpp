#include "backends/kubernetes/status/reasons.h"

#include "backends/kubernetes/objects/objects.h"
#include "backends/kubernetes/objects/trainjob.h"
#include "backends/kubernetes/status/kueue.h"
#include "submit/errors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

namespace dtrain::kubernetes {
namespace {

using nlohmann::json;

// The scheduler's words, from 1.33 on: a node that would do if nothing else were on it has no
// victims for this Pod; one that would not do even then makes preemption no help.
constexpr std::string_view k_no_victims = "No preemption victims found";
constexpr std::string_view k_unfit = "Preemption is not helpful";
constexpr std::string_view k_claims = " no new claims to deallocate";
constexpr std::string_view k_preemption = " preemption: ";
// Volcano's, of a Pod that would fit while its gang does not, and of one that does not.
constexpr std::string_view k_fits = "Schedulable";
constexpr std::string_view k_gang = "pod group is not ready";
constexpr const char* k_sequence = "sequence"; ///< The init container of job.yaml.

/// Waiting reasons that pass by themselves.
bool is_ordinary_wait(const std::string& reason) {
  return reason.empty() || reason == "ContainerCreating" || reason == "PodInitializing";
}

/// `what` of the first rank, and how many others say the same.
std::string about(const json& pod, std::size_t others, const std::string& what) {
  return others == 0 ? fmt::format("{}: {}", instance_of(pod), what)
                     : fmt::format("{} and {} more: {}", instance_of(pod), others, what);
}

/// The first Pod for which `say` gives words, with the number of others that say anything.
template <typename Say>
std::string first_of(const JobObjects& objects, Say say) {
  const json* first = nullptr;
  std::string words;
  std::size_t others = 0;
  for (const json* pod : latest_pods(objects)) {
    std::string text = pod == nullptr ? std::string() : say(*pod);
    if (text.empty()) {
      continue;
    }
    if (first == nullptr) {
      first = pod;
      words = text;
    } else {
      ++others;
    }
  }
  return first == nullptr ? std::string() : about(*first, others, words);
}

bool is_about_image(const std::string& reason) {
  return reason == "InvalidImageName" || reason == "RegistryUnavailable" ||
         reason.find("ImagePull") != std::string::npos ||
         reason.find("ErrImage") != std::string::npos ||
         reason.find("ImageInspect") != std::string::npos;
}

std::string container_wait(const json& pod) {
  for (const char* list : {"status/initContainerStatuses", "status/containerStatuses"}) {
    for (const json& status : member(pod, list)) {
      std::string reason = text_at(status, "state/waiting/reason");
      if (!is_ordinary_wait(reason)) {
        std::string message = text_at(status, "state/waiting/message");
        return (is_about_image(reason) ? "cannot pull the image: " : "") +
               (message.empty() ? reason : fmt::format("{}: {}", reason, message));
      }
    }
  }
  return {};
}

/// Init containers that end by themselves say why in their logs; this one waits for other Pods.
std::string sequence_wait(const json& pod) {
  for (const json& status : member(pod, "status/initContainerStatuses")) {
    if (text_at(status, "name") == k_sequence && member(status, "state").contains("running")) {
      return "waits for the roles that --role-sequence starts first";
    }
  }
  return {};
}

std::string unschedulable(const json& pod) {
  const json& scheduled = condition(pod, "PodScheduled");
  if (text_at(scheduled, "status") != "False") {
    return {};
  }
  const std::string message = text_at(scheduled, "message");
  constexpr const char* k_no_gang = "the whole gang does not fit yet";
  if (text_at(scheduled, "reason") == k_fits) {
    return k_no_gang;
  }
  if (message.starts_with(k_gang)) {
    return fmt::format("{}: {}", k_no_gang, message);
  }
  const char* kind = "";
  if (text_at(scheduled, "reason") != "Unschedulable") {
    kind = "it is held back: "; // SchedulingGated, or another scheduler's words
  } else if (message.find("ersistentvolumeclaim") != std::string::npos ||
             message.find("PersistentVolumeClaim") != std::string::npos) {
    kind = "a volume does not exist: ";
  } else if (message.find(k_no_victims) != std::string::npos) {
    kind = "the cluster is busy: ";
  } else if (message.find(k_unfit) != std::string::npos) {
    kind = "no node matches: ";
  }
  // What else the scheduler tried is not a reason.
  const std::size_t end = std::min(message.find(k_claims), message.find(k_preemption));
  return kind + fmt::format("{}: {}", text_at(scheduled, "reason"), message.substr(0, end));
}

/// Kubernetes' own scheduler looks at every Pod at once.
std::string unseen(const json& pod) {
  const std::string scheduler = text_at(pod, "spec/schedulerName");
  const bool waits = text_at(pod, "status/phase") == "Pending" &&
                     text_at(pod, "spec/nodeName").empty() &&
                     condition(pod, "PodScheduled").is_null() && !scheduler.empty() &&
                     scheduler != "default-scheduler";
  return waits ? fmt::format("scheduler {} has not looked at it yet (is it running?)", scheduler)
               : std::string();
}

std::string lost_node(const json& pod) {
  const json& ready = condition(pod, "Ready");
  bool unreachable =
      text_at(ready, "reason") == "NodeStatusUnknown" ||
      text_at(pod, "status/reason") == "NodeLost" || text_at(pod, "status/phase") == "Unknown" ||
      text_at(condition(pod, "DisruptionTarget"), "reason") == "DeletionByTaintManager";
  return unreachable ? fmt::format("node {} is lost", text_at(pod, "spec/nodeName"))
                     : std::string();
}

/// Seconds for which the Pod's node has been silent: since its lease, which a kubelet renews four
/// times in its duration. 0 if it has just been renewed, or if that is not known.
std::int64_t silence(const JobObjects& objects, const json& pod) {
  constexpr int k_renewals = 4;
  constexpr std::int64_t k_leeway = 2;
  const std::string node = text_at(pod, "spec/nodeName");
  const auto lease =
      std::find_if(objects.leases.begin(), objects.leases.end(),
                   [&](const json& each) { return text_at(each, "metadata/name") == node; });
  const Time renewed =
      lease == objects.leases.end() ? 0 : parse_time(text_at(*lease, "spec/renewTime"));
  if (renewed == 0 || objects.now == 0) {
    return 0;
  }
  const std::int64_t seconds = (objects.now - renewed) / k_second;
  const std::int64_t due = number_at(*lease, "spec/leaseDurationSeconds") / k_renewals;
  return seconds < due + k_leeway ? 0 : seconds;
}

/// Long before the cluster calls the node lost.
std::string silent_node(const JobObjects& objects, const json& pod) {
  const std::int64_t seconds = silence(objects, pod);
  if (seconds == 0 || text_at(pod, "status/phase") != "Running") {
    return {};
  }
  std::string then;
  for (const json& toleration : member(pod, "spec/tolerations")) {
    if (text_at(toleration, "key") == "node.kubernetes.io/unreachable") {
      const std::int64_t evicted_after = number_at(toleration, "tolerationSeconds", -1);
      then = evicted_after < 0
                 ? "; its Pods wait for the node to come back"
                 : fmt::format("; its Pods restart elsewhere {} s after the cluster gives "
                               "the node up (by default 50 s after its last answer)",
                               evicted_after);
    }
  }
  return fmt::format("node {} has not answered for {} s{}", text_at(pod, "spec/nodeName"), seconds,
                     then);
}

/// The message of the latest event about one of `uids` with one of `reasons`, seen `at_least`
/// times.
std::string latest_event(const JobObjects& objects, const std::set<std::string>& uids,
                         const std::set<std::string>& reasons, int at_least = 1) {
  const json* latest = nullptr;
  std::string latest_time;
  for (const ObjectPtr& shared : objects.events) {
    const json& event = *shared;
    if (!uids.contains(text_at(event, "involvedObject/uid")) ||
        !reasons.contains(text_at(event, "reason")) || number_at(event, "count", 1) < at_least) {
      continue;
    }
    std::string time = text_at(event, "lastTimestamp");
    if (time.empty()) {
      time = text_at(event, "metadata/creationTimestamp");
    }
    if (latest == nullptr || time >= latest_time) {
      latest = &event;
      latest_time = time;
    }
  }
  return latest == nullptr
             ? std::string()
             : fmt::format("{}: {}", text_at(*latest, "reason"), text_at(*latest, "message"));
}

} // namespace

std::string why_pending(const JobObjects& objects) {
  std::string reason =
      is_suspended(objects.job) || is_suspended(objects.lead) ? why_suspended(objects) : "";
  if (reason.empty() && is_to_be(objects.set)) {
    reason = latest_event(objects, {text_at(objects.set, "metadata/uid")},
                          {"TrainJobResourcesCreationFailed"});
    if (reason.empty()) {
      reason = "Kubeflow Trainer has created no JobSet for its TrainJob yet; check that its "
               "controller runs";
    }
  }
  if (reason.empty()) {
    reason = first_of(objects, container_wait);
  }
  if (reason.empty()) {
    reason = first_of(objects, unschedulable);
  }
  if (reason.empty()) {
    reason = first_of(objects, unseen);
  }
  if (reason.empty()) {
    auto pods = latest_pods(objects);
    if (std::find(pods.begin(), pods.end(), nullptr) != pods.end()) {
      std::set<std::string> uids;
      for (const json* job : jobs_of(objects)) {
        uids.insert(text_at(*job, "metadata/uid"));
      }
      reason = latest_event(objects, uids, {"FailedCreate"});
      if (reason.find("exceeded quota") != std::string::npos) {
        reason = "the namespace's quota is used up: " + reason;
      } else if (reason.find("failed quota") != std::string::npos) {
        reason = "the namespace's quota requires resource requests and limits: " + reason;
      }
    }
  }
  if (reason.empty()) {
    reason = first_of(objects, [&](const json& pod) {
      // The kubelet tries again within a second: the first failure is often the last.
      constexpr int k_tries = 2;
      bool waits = text_at(pod, "status/phase") == "Pending";
      const std::string event =
          waits ? latest_event(objects, {text_at(pod, "metadata/uid")},
                               {"FailedMount", "FailedAttachVolume", "FailedCreatePodSandBox"},
                               k_tries)
                : std::string();
      return (event.starts_with("FailedMount") || event.starts_with("FailedAttachVolume")
                  ? "cannot mount a volume: "
                  : "") +
             event;
    });
  }
  if (reason.empty()) {
    reason = first_of(objects, lost_node);
  }
  if (reason.empty()) {
    reason = first_of(objects, [&](const json& pod) { return silent_node(objects, pod); });
  }
  if (reason.empty()) {
    reason = first_of(objects, sequence_wait);
  }
  return printable(reason);
}

std::string why_failed(const JobObjects& objects) {
  for (const json* job : jobs_of(objects)) {
    for (const char* type : {"Failed", "FailureTarget"}) {
      const json& failed = condition(*job, type);
      if (text_at(failed, "status") == "True") {
        return printable(
            fmt::format("{}: {}", text_at(failed, "reason"), text_at(failed, "message")));
      }
    }
  }
  return {};
}

} // namespace dtrain::kubernetes
