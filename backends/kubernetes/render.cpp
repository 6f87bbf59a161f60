#include "backends/kubernetes/render.h"

#include "backends/kubernetes/base64.h"
#include "backends/kubernetes/objects.h"
#include "submit/errors.h"
#include "submit/quote.h"
#include "submit/render.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cctype>
#include <set>

namespace dtrain::kubernetes {
namespace {

using nlohmann::json;

constexpr std::size_t k_longest_host_name = 63;
constexpr int k_lost_node_seconds = 30;
constexpr int k_milliseconds = 1000;
constexpr const char* k_trainer_program = "dtrain-trainer";

/// Variables that the script derives from the Pod, not from the job.
const std::set<std::string, std::less<>> k_own_variables = {"RANK",
                                                            "NODE_RANK",
                                                            "GROUP_RANK",
                                                            "ROLE_RANK",
                                                            "TF_CONFIG",
                                                            "TORCHELASTIC_RUN_ID",
                                                            "TORCHELASTIC_RESTART_COUNT",
                                                            "DTRAIN_JOB_UID",
                                                            "DTRAIN_JOB_TOKEN",
                                                            "DTRAIN_RESTART_COUNT"};

std::vector<std::string> program_of(const JobSpec& job) {
  std::vector<std::string> program = job.command;
  if (job.runs_bundled_trainer()) {
    program.insert(program.begin(), k_trainer_program);
  }
  return program;
}

/// KEY and VALUE of "KEY=VALUE". Throws UsageError where there is no KEY.
std::pair<std::string, std::string> key_value(const std::string& text, const char* flag) {
  std::size_t equals = text.find('=');
  if (equals == 0 || equals == std::string::npos) {
    throw UsageError(fmt::format("{}={}: KEY=VALUE is expected", flag, printable(text)));
  }
  return {text.substr(0, equals), text.substr(equals + 1)};
}

/// Whole seconds, rounded up: what the API counts in.
int seconds(int milliseconds) {
  return milliseconds / k_milliseconds + (milliseconds % k_milliseconds > 0 ? 1 : 0);
}

/// A section of a template: shown once with `content`, or not at all.
json section(bool shown, const json& content) {
  auto list = json::array();
  if (shown) {
    list.push_back(content);
  }
  return list;
}

json toleration(const std::string& text) {
  static const std::array<std::string, 3> k_effects = {"NoSchedule", "PreferNoSchedule",
                                                       "NoExecute"};
  std::size_t colon = text.rfind(':');
  std::string effect = colon == std::string::npos ? "" : text.substr(colon + 1);
  std::string taint = text.substr(0, colon);
  if (taint.empty() || (colon != std::string::npos &&
                        std::find(k_effects.begin(), k_effects.end(), effect) == k_effects.end())) {
    throw UsageError(fmt::format("--toleration={}: KEY[=VALUE][:EFFECT] is expected, EFFECT one of "
                                 "NoSchedule, PreferNoSchedule, NoExecute",
                                 printable(text)));
  }
  std::size_t equals = taint.find('=');
  bool has_value = equals != std::string::npos;
  return {{"key", taint.substr(0, equals)},
          {"operator", has_value ? "Equal" : "Exists"},
          {"value", section(has_value, {{"text", has_value ? taint.substr(equals + 1) : ""}})},
          {"effect", section(!effect.empty(), {{"text", effect}})}};
}

/// SOURCE and PATH of "SOURCE:/PATH".
std::pair<std::string, std::string> mount(const std::string& text, const char* flag) {
  std::size_t colon = text.find(":/");
  if (colon == 0 || colon == std::string::npos) {
    throw UsageError(fmt::format("{}={}: {}:/PATH is expected", flag, printable(text),
                                 flag == std::string_view("--data") ? "CLAIM" : "/NODE/PATH"));
  }
  return {text.substr(0, colon), text.substr(colon + 1)};
}

void add_mounts(const JobSpec& job, json& data) {
  for (const char* list : {"volumes", "claims", "host_paths"}) {
    data[list] = json::array();
  }
  auto add = [&](const char* list, const char* key, const char* flag, const std::string& text) {
    auto [source, path] = mount(text, flag);
    std::string volume = fmt::format("data-{}", data["volumes"].size());
    data["volumes"].push_back({{"volume", volume}, {"path", path}});
    data[list].push_back({{"volume", volume}, {key, source}});
  };
  for (const std::string& claim : job.data) {
    add("claims", "claim", "--data", claim);
  }
  for (const std::string& folder : job.data_dirs) {
    add("host_paths", "host_path", "--data-dir", folder);
  }
}

json limits_of(const JobSpec& job) {
  auto limits = json::array();
  if (job.gpus > 0) {
    limits.push_back({{"key", k_gpu_resource}, {"value", std::to_string(job.gpus)}});
  }
  if (!job.cpu.empty()) {
    limits.push_back({{"key", "cpu"}, {"value", job.cpu}});
  }
  if (!job.memory.empty()) {
    limits.push_back({{"key", "memory"}, {"value", job.memory}});
  }
  return limits;
}

json job_data(const JobSpec& job) {
  json data = {{"name", job.name},
               {"namespace", job.namespace_name},
               {"job_object", role_job_name(job.name, k_worker_role)},
               {"workers", job.workers},
               {"max_restarts", job.max_restarts},
               {"grace_seconds", seconds(job.grace_period_ms)},
               {"lost_node_seconds", k_lost_node_seconds},
               {"image", job.image},
               {"share_memory", job.share_memory},
               {"keep_from_disruption", job.max_restarts == 0},
               {"replace_from_lost_node", job.max_restarts > 0}};
  data["queue"] = section(!job.queue.empty(), {{"name", job.queue}});
  data["active_deadline"] =
      section(job.running_timeout_ms > 0, {{"seconds", seconds(job.running_timeout_ms)}});
  data["ttl"] =
      section(job.ttl_after_finished_ms >= 0, {{"seconds", seconds(job.ttl_after_finished_ms)}});
  data["priority"] = section(!job.priority.empty(), {{"name", job.priority}});
  data["pull_policy"] = section(!job.image_pull_policy.empty(), {{"name", job.image_pull_policy}});
  data["working_dir"] = section(!job.working_dir.empty(), {{"path", job.working_dir}});
  data["as_user"] = section(job.run_as_user > 0, {{"id", job.run_as_user}});
  data["as_root"] = job.run_as_user == 0;
  data["pull_secrets"] = json::array();
  for (const std::string& secret : job.image_pull_secrets) {
    data["pull_secrets"].push_back({{"name", secret}});
  }
  data["selectors"] = json::array();
  for (const std::string& selector : job.selectors) {
    auto [key, value] = key_value(selector, "--selector");
    data["selectors"].push_back({{"key", key}, {"value", value}});
  }
  data["tolerations"] = json::array();
  for (const std::string& text : job.tolerations) {
    data["tolerations"].push_back(toleration(text));
  }
  data["limits"] = limits_of(job);
  for (const char* list : {"pull_secrets", "selectors", "limits"}) {
    data[fmt::format("has_{}", list)] = !data[list].empty();
  }
  add_mounts(job, data);
  return data;
}

json config_data(const JobSpec& job) {
  std::string start = start_script(job);
  bool is_text = is_utf8(start);
  return {{"name", job.name},
          {"namespace", job.namespace_name},
          {"job", write_job_yaml(job)},
          {"hostfile", hostfile_text(gang_of(job))},
          {"start_text", section(is_text, {{"text", is_text ? start : ""}})},
          {"start_bytes", section(!is_text, {{"base64", base64_encode(start)}})}};
}

void check_names(const JobSpec& job) {
  if (job.image.empty()) {
    throw UsageError("--image is needed on Kubernetes: the container image that the ranks run in");
  }
  std::string last = instance_name(role_job_name(job.name, k_worker_role), job.workers - 1);
  if (last.size() > k_longest_host_name) {
    throw UsageError(fmt::format("--name={}: {} characters at most with {} workers on Kubernetes, "
                                 "so that the host name {} fits into {}",
                                 job.name, k_longest_host_name - (last.size() - job.name.size()),
                                 job.workers, last, k_longest_host_name));
  }
  if (std::isdigit(static_cast<unsigned char>(job.name[0])) != 0) {
    throw UsageError(fmt::format(
        "--name={}: on Kubernetes a name begins with a letter, as its Service's must", job.name));
  }
}

std::string render_document(const std::string& name, const json& data) {
  std::string path = "kubernetes/" + name;
  return render_template(path, builtin_template(path).text, data);
}

} // namespace

GangPlace gang_of(const JobSpec& job) {
  GangPlace gang;
  gang.job_name = job.name;
  gang.namespace_name = job.namespace_name;
  gang.hostfile_path = k_hostfile_path;
  gang.max_restarts = job.max_restarts;
  gang.master_port = k_master_port;
  std::string host = role_job_name(job.name, k_worker_role);
  for (int rank = 0; rank < job.workers; ++rank) {
    gang.ranks.push_back(
        {k_worker_role, rank, fmt::format("{}-{}.{}", host, rank, job.name), k_tf_port});
  }
  gang.master_addr = gang.ranks.at(0).host;
  return gang;
}

std::string start_script(const JobSpec& job) {
  GangPlace gang = gang_of(job);
  json data;
  data["environment"] = json::array();
  for (const auto& [name, value] : rank_env(gang, 0)) {
    if (!k_own_variables.contains(name)) {
      data["environment"].push_back({{"name", name}, {"value", value}});
    }
  }
  // The ranks' TF_CONFIGs differ in the task's index alone.
  std::string config = tf_config(gang, 0);
  constexpr std::string_view k_index = "\"index\":0";
  std::size_t after = config.rfind(k_index) + k_index.size();
  data["tf_config_head"] = config.substr(0, after - 1);
  data["tf_config_tail"] = config.substr(after);

  data["user_environment"] = json::array();
  for (const std::string& variable : job.env) {
    auto [name, value] = key_value(variable, "--env");
    data["user_environment"].push_back({{"name", name}, {"value", value}});
  }
  data["command"] = json::array();
  for (const std::string& word : program_of(job)) {
    data["command"].push_back({{"word", word}});
  }
  return render_document("start.sh", data);
}

Plan render_plan(const JobSpec& job) {
  check_names(job);
  Plan plan;
  plan.job = job;
  auto add = [&](const char* name, const json& data) {
    plan.documents.push_back({name, render_document(name, data)});
  };
  json names = {{"name", job.name},
                {"namespace", job.namespace_name},
                {"job_object", role_job_name(job.name, k_worker_role)}};
  add(k_job_document, job_data(job));
  add("service.yaml", names);
  add(k_config_document, config_data(job));
  add(k_secret_document, names);
  return plan;
}

} // namespace dtrain::kubernetes
