#include "backends/kubernetes/status/pod_status.h"

#include "backends/kubernetes/objects/objects.h"
#include "submit/errors.h"

#include <fmt/format.h>

#include <charconv>
#include <csignal>

namespace dtrain::kubernetes {

using nlohmann::json;

namespace {

constexpr int k_signal_exit_base =
    128; // A shell's and a container runtime's way to say "by signal".
constexpr int k_last_signal = 64;

/// The container that decides the Pod's state: the one that brings code if it failed, else the main
/// one.
const json& main_container(const json& pod) {
  static const json k_null;
  for (const json& status : member(pod, "status/initContainerStatuses")) {
    if (number_at(status, "state/terminated/exitCode") != 0) {
      return status;
    }
  }
  for (const json& status : member(pod, "status/containerStatuses")) {
    if (status.value("name", "") == k_container) {
      return status;
    }
  }
  return k_null;
}

} // namespace

int failure_count(const json& pod) {
  std::string text = annotation(pod, k_failure_count_annotation);
  int count = 0;
  std::from_chars(text.data(), text.data() + text.size(), count);
  return count;
}

Phase pod_phase(const json& pod) {
  std::string phase = text_at(pod, "status/phase");
  if (phase == "Succeeded") {
    return Phase::succeeded;
  }
  if (phase == "Failed") {
    return Phase::failed;
  }
  const json& state = member(main_container(pod), "state");
  if (state.contains("terminated")) {
    return number_at(state, "terminated/exitCode") == 0 ? Phase::succeeded : Phase::failed;
  }
  return state.contains("running") ? Phase::running : Phase::pending;
}

void read_exit(const json& pod, std::optional<int>& exit_code, std::optional<int>& signal) {
  const json& ended = member(main_container(pod), "state/terminated");
  if (!ended.is_object()) {
    return;
  }
  int code = static_cast<int>(number_at(ended, "exitCode"));
  int by_signal = static_cast<int>(number_at(ended, "signal"));
  if (by_signal == 0 && code > k_signal_exit_base && code <= k_signal_exit_base + k_last_signal) {
    by_signal = code - k_signal_exit_base;
  }
  if (by_signal != 0) {
    signal = by_signal;
  } else {
    exit_code = code;
  }
}

bool was_ended(const json& pod, const InstanceStatus& instance) {
  return member(pod, "metadata").contains("deletionTimestamp") || instance.signal == SIGTERM;
}

Time pod_end(const json& pod) {
  return parse_time(text_at(main_container(pod), "state/terminated/finishedAt"));
}

InstanceStatus instance_status(const json& pod) {
  InstanceStatus instance;
  instance.name = instance_of(pod);
  instance.phase = pod_phase(pod);
  const json& state = member(main_container(pod), "state");
  const char* started = state.contains("terminated") ? "terminated/startedAt" : "running/startedAt";
  instance.started = parse_time(text_at(state, started));
  instance.ended = pod_end(pod);
  instance.gpus = gpus_of(member(pod, "spec"));
  instance.node = text_at(pod, "spec/nodeName");
  read_exit(pod, instance.exit_code, instance.signal);
  return instance;
}

std::string pod_message(const json& pod) {
  std::string reason = text_at(main_container(pod), "state/terminated/reason");
  std::string message = text_at(main_container(pod), "state/terminated/message");
  if (reason == "OOMKilled") {
    return "out of memory: the container's limit was exceeded (--memory)";
  }
  if (reason.empty() || reason == "Error" || reason == "Completed") {
    reason = text_at(pod, "status/reason");
    message = text_at(pod, "status/message");
  }
  return printable(message.empty() ? reason : fmt::format("{}: {}", reason, message));
}

std::string telling_container(const json& pod) {
  const std::string name = text_at(main_container(pod), "name");
  return name.empty() ? k_container : name;
}

} // namespace dtrain::kubernetes
