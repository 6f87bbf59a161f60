#include "backends/kubernetes/render.h"

#include "backends/kubernetes/base64.h"
#include "backends/kubernetes/objects.h"
#include "backends/kubernetes/volumes.h"
#include "backends/support/code.h"
#include "submit/errors.h"
#include "submit/job_roles.h"
#include "submit/quote.h"
#include "submit/render.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cctype>
#include <numeric>
#include <set>
#include <tuple>

namespace dtrain::kubernetes {
namespace {

using nlohmann::json;

constexpr std::size_t k_longest_host_name = 63;
constexpr int k_lost_node_seconds = 30;
constexpr int k_milliseconds = 1000;
constexpr const char* k_gpu_type_label = "nvidia.com/gpu.product";
constexpr const char* k_trainer_program = "dtrain-trainer";

/// Variables that the script derives from the Pod, not from the job.
const std::set<std::string, std::less<>> k_own_variables = {
    "RANK",           "NODE_RANK",        "GROUP_RANK",          "ROLE_RANK",
    "TF_CONFIG",      "PET_NODE_RANK",    "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT",
    "DTRAIN_JOB_UID", "DTRAIN_JOB_TOKEN", "DTRAIN_RESTART_COUNT"};

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

/// What each instance asks for: where only one of request and limit is given, it is both.
void add_resources(const JobSpec& job, const Role& role, json& data) {
  data["limits"] = json::array();
  data["requests"] = json::array();
  if (role.gpus > 0) {
    data["limits"].push_back({{"key", k_gpu_resource}, {"value", std::to_string(role.gpus)}});
  }
  for (const std::string& device : job.devices) {
    auto [key, value] = key_value(device, "--device");
    data["limits"].push_back({{"key", key}, {"value", value}});
  }
  const auto add = [&](const char* key, const std::string& request, const std::string& limit) {
    const std::string& most = limit.empty() ? request : limit;
    if (!most.empty()) {
      data["limits"].push_back({{"key", key}, {"value", most}});
    }
    if (!request.empty() && !limit.empty()) {
      data["requests"].push_back({{"key", key}, {"value", request}});
    }
  };
  add("cpu", role.cpu, role.cpu_limit);
  add("memory", role.memory, role.memory_limit);
  data["has_limits"] = !data["limits"].empty();
  data["has_requests"] = !data["requests"].empty();
  data["has_resources"] = data["has_limits"].get<bool>() || data["has_requests"].get<bool>();
}

json pairs(const std::vector<std::string>& texts, const char* flag) {
  auto list = json::array();
  for (const std::string& text : texts) {
    auto [key, value] = key_value(text, flag);
    list.push_back({{"key", key}, {"value", value}});
  }
  return list;
}

/// "chief=1,worker=3"
std::string roles_text(const std::vector<Role>& roles) {
  std::string text;
  for (const Role& role : roles) {
    text += fmt::format("{}{}={}", text.empty() ? "" : ",", role.name, role.replicas);
  }
  return text;
}

int instances_of(const std::vector<Role>& roles) {
  return std::accumulate(roles.begin(), roles.end(), 0,
                         [](int sum, const Role& role) { return sum + role.replicas; });
}

/// The places of those on which the job's success hangs, "0-2"; empty: all.
std::string deciding(const JobSpec& job, const std::vector<Role>& roles) {
  if (job.success_policy == "ChiefWorker") {
    return "0";
  }
  const auto ranks = std::accumulate(roles.begin(), roles.end(), 0, [](int sum, const Role& role) {
    return sum + (role.ranked ? role.replicas : 0);
  });
  return ranks == instances_of(roles) ? "" : ranks == 1 ? "0" : fmt::format("0-{}", ranks - 1);
}

/// Of a type with a launcher, that and the workers have a Job each.
bool has_launcher(const JobSpec& job) { return find_job_type(job.type)->has_launcher; }

/// One Job, whose Pods are of these roles.
json job_data(const JobSpec& job, const std::vector<Role>& roles, const JobSecrets& secrets) {
  const bool launcher = roles[0].name == k_launcher;
  const std::string decides = has_launcher(job) ? "" : deciding(job, roles);
  json data = {{"name", job.name},
               {"namespace", job.namespace_name},
               {"job_object", role_job_name(job.name, launcher ? k_launcher : k_worker_role)},
               {"launcher", launcher},
               {"has_ssh", has_launcher(job)},
               {"script", roles[0].runs_command ? "/etc/dtrain/start.sh" : "/etc/dtrain/worker.sh"},
               {"type", find_job_type(job.type)->trainer},
               {"roles", roles_text(roles)},
               {"instances", instances_of(roles)},
               {"host_network", job.host_network},
               {"host_ipc", job.host_ipc},
               {"host_pid", job.host_pid},
               {"max_restarts", job.max_restarts},
               {"grace_seconds", seconds(job.grace_period_ms)},
               {"lost_node_seconds", k_lost_node_seconds},
               {"image", roles[0].image},
               {"share_memory", job.share_memory},
               {"keep_from_disruption", job.max_restarts == 0},
               {"replace_from_lost_node", job.max_restarts > 0}};
  data["success"] = section(!decides.empty(), {{"indexes", decides}});
  data["scheduler"] = section(!job.scheduler.empty(), {{"name", job.scheduler}});
  data["labels"] = pairs(job.labels, "--label");
  data["annotations"] = pairs(roles[0].annotations, "--annotation");
  data["nodes"] = json::array();
  for (const std::string& node : job.node_list) {
    data["nodes"].push_back({{"node", node}});
  }
  data["queue"] = section(!job.queue.empty() && !launcher, {{"name", job.queue}});
  data["active_deadline"] =
      section(job.running_timeout_ms > 0, {{"seconds", seconds(job.running_timeout_ms)}});
  data["ttl"] =
      section(job.ttl_after_finished_ms >= 0, {{"seconds", seconds(job.ttl_after_finished_ms)}});
  data["priority"] = section(!job.priority.empty(), {{"name", job.priority}});
  data["pull_policy"] = section(!job.image_pull_policy.empty(), {{"name", job.image_pull_policy}});
  const std::string folder = start_folder(job);
  data["working_dir"] = section(!folder.empty(), {{"path", folder}});
  data["as_user"] = section(job.run_as_user > 0, {{"id", job.run_as_user}});
  data["as_root"] = job.run_as_user == 0;
  data["pull_secrets"] = json::array();
  for (const std::string& secret : job.image_pull_secrets) {
    data["pull_secrets"].push_back({{"name", secret}});
  }
  data["selectors"] = pairs(roles[0].selectors, "--selector");
  if (!job.gpu_type.empty()) {
    data["selectors"].push_back({{"key", k_gpu_type_label}, {"value", job.gpu_type}});
  }
  data["tolerations"] = json::array();
  for (const std::string& text : job.tolerations) {
    data["tolerations"].push_back(toleration(text));
  }
  add_resources(job, roles[0], data);
  for (const char* list : {"pull_secrets", "selectors", "nodes"}) {
    data[fmt::format("has_{}", list)] = !data[list].empty();
  }
  add_volumes(job, data);
  data["has_files"] = !data["files"].empty();
  data["has_environment"] = !secrets.env.empty();
  data["cluster_secrets"] = json::array();
  for (const std::string& secret : secrets.of_cluster) {
    data["cluster_secrets"].push_back({{"secret", secret}});
  }
  data["has_cluster_secrets"] = !secrets.of_cluster.empty();
  return data;
}

std::string render_document(const Templates& templates, const std::string& name, const json& data) {
  return fill_template(templates, "kubernetes/" + name, data);
}

/// KEY and VALUE of each variable of the user's.
json user_environment(const JobSpec& job) {
  auto variables = json::array();
  for (const std::string& variable : job.env) {
    auto [name, value] = key_value(variable, "--env");
    variables.push_back({{"name", name}, {"value", value}});
  }
  return variables;
}

std::string worker_script(const JobSpec& job, const Templates& templates) {
  return render_document(templates, "worker.sh",
                         {{"launcher_host", gang_of(job).ranks.at(0).host},
                          {"user_environment", user_environment(job)}});
}

/// For the workers alone: other hosts are reached as ever.
std::string ssh_config(const JobSpec& job) {
  return fmt::format("Host {}-*\n"
                     "  Port 2222\n"
                     "  IdentityFile /etc/dtrain-ssh/key\n"
                     "  IdentitiesOnly yes\n"
                     "  UserKnownHostsFile /etc/dtrain-ssh/known-hosts\n"
                     "  GlobalKnownHostsFile /dev/null\n"
                     "  StrictHostKeyChecking yes\n"
                     "  BatchMode yes\n"
                     "  LogLevel ERROR\n"
                     "  ServerAliveInterval 15\n",
                     role_job_name(job.name, k_worker_role));
}

json config_data(const JobSpec& job, const Templates& templates) {
  json data = {{"name", job.name},
               {"namespace", job.namespace_name},
               {"job", write_job_yaml(job)},
               {"hostfile", hostfile_text(gang_of(job))},
               {"texts", json::array()},
               {"binaries", json::array()},
               {"launcher", has_launcher(job)}};
  const auto add = [&](const char* key, const std::string& script) {
    if (is_utf8(script)) {
      data["texts"].push_back({{"key", key}, {"text", script}});
    } else {
      data["binaries"].push_back({{"key", key}, {"base64", base64_encode(script)}});
    }
  };
  add("start.sh", start_script(job, templates));
  if (job.sync_mode == "git") {
    const auto [url, ref] = split_ref(job.sync_source);
    add("code.sh", render_document(templates, "code.sh",
                                   {{"folder", code_folder(job)}, {"url", url}, {"ref", ref}}));
  }
  if (has_launcher(job)) {
    add("worker.sh", worker_script(job, templates));
    data["launcher_script"] =
        render_document(templates, "launcher.sh", {{"max_restarts", job.max_restarts}});
    data["ssh_config"] = ssh_config(job);
    data["deepspeed"] = builtin_template("local/deepspeed.sh").text;
  }
  data["has_binaries"] = !data["binaries"].empty();
  return data;
}

/// The Pods of a Job are made from one template.
void check_roles(const std::vector<Role>& roles) {
  const auto asks = [](const Role& role) {
    return std::tie(role.gpus, role.image, role.cpu, role.cpu_limit, role.memory, role.memory_limit,
                    role.selectors, role.annotations);
  };
  for (const Role& role : roles) {
    if (asks(role) != asks(roles[0])) {
      throw UsageError(fmt::format("the roles {} and {} differ in image, resources, selectors or "
                                   "annotations: on Kubernetes they are Pods of one Indexed Job "
                                   "and ask for the same{}",
                                   roles[0].name, role.name,
                                   role.gpus == roles[0].gpus
                                       ? ""
                                       : fmt::format("; GPUs: {} and {} (--ps-gpus={})",
                                                     roles[0].gpus, role.gpus, roles[0].gpus)));
    }
  }
}

void check_names(const JobSpec& job, const std::vector<Role>& roles) {
  if (roles[0].image.empty()) {
    throw UsageError("--image is needed on Kubernetes: the container image that the ranks run in");
  }
  std::string last = instance_name(role_job_name(job.name, k_worker_role), instances_of(roles) - 1);
  if (last.size() > k_longest_host_name) {
    throw UsageError(fmt::format("--name={}: {} characters at most with {} Pods on Kubernetes, "
                                 "so that the host name {} fits into {}",
                                 job.name, k_longest_host_name - (last.size() - job.name.size()),
                                 instances_of(roles), last, k_longest_host_name));
  }
  if (std::isdigit(static_cast<unsigned char>(job.name[0])) != 0) {
    throw UsageError(fmt::format(
        "--name={}: on Kubernetes a name begins with a letter, as its Service's must", job.name));
  }
}

json secret_data(const json& names, const std::map<std::string, std::string>& shown) {
  json data = names;
  data["secrets"] = json::array();
  for (const auto& [key, text] : shown) {
    data["secrets"].push_back({{"key", key}, {"shown", text}});
  }
  data["has_secrets"] = !shown.empty();
  return data;
}

} // namespace

GangPlace gang_of(const JobSpec& job) {
  GangPlace gang;
  gang.job_name = job.name;
  gang.namespace_name = job.namespace_name;
  gang.hostfile_path = k_hostfile_path;
  gang.max_restarts = job.max_restarts;
  gang.master_port = k_master_port;
  const std::vector<Role> roles = job_roles(job);
  const bool launched = has_launcher(job);
  const std::string host = role_job_name(job.name, launched ? k_launcher : k_worker_role);
  for (const Role& role : roles) {
    if (launched && role.name != k_launcher) {
      for (int index = 0; index < role.replicas; ++index) {
        gang.launcher_hosts.push_back(
            fmt::format("{}-{}.{}", role_job_name(job.name, k_worker_role), index, job.name));
      }
      continue;
    }
    for (int index = 0; index < role.replicas; ++index) {
      gang.ranks.push_back({.role = role.name,
                            .index = index,
                            .host = fmt::format("{}-{}.{}", host, gang.ranks.size(), job.name),
                            .port = role.port == 0 ? k_tf_port : role.port});
    }
  }
  gang.torchrun_nproc = job.nproc_per_node;
  gang.launcher_slots = launched ? slots_per_worker(job) : 0;
  gang.master_addr = launched ? gang.launcher_hosts.at(0) : gang.ranks.at(0).host;
  return gang;
}

std::string start_script(const JobSpec& job, const Templates& templates) {
  GangPlace gang = gang_of(job);
  json data;
  data["roles"] = json::array();
  int first = 0;
  for (const Role& role : job_roles(job)) {
    if (!role.runs_command) {
      continue; // These run worker.sh.
    }
    json own = {{"first", first}, {"end", first + role.replicas}, {"ranked", role.ranked}};
    own["torchrun"] = role.ranked && !gang.torchrun_nproc.empty();
    own["environment"] = json::array();
    for (const auto& [name, value] : rank_env(gang, first)) {
      if (!k_own_variables.contains(name)) {
        own["environment"].push_back({{"name", name}, {"value", value}});
      }
    }
    // The TF_CONFIGs of a role differ in the task's index alone.
    std::string config = tf_config(gang, first);
    constexpr std::string_view k_index = "\"index\":0";
    std::size_t after = config.rfind(k_index) + k_index.size();
    own["tf_config"] = section(role.name != k_launcher, {{"head", config.substr(0, after - 1)},
                                                         {"tail", config.substr(after)}});
    data["roles"].push_back(std::move(own));
    first += role.replicas;
  }

  data["user_environment"] = user_environment(job);
  data["has_launcher"] = has_launcher(job);
  data["command"] = json::array();
  for (const std::string& word : program_of(job)) {
    data["command"].push_back({{"word", word}});
  }
  return render_document(templates, "start.sh", data);
}

Plan render_plan(const JobSpec& job, const Templates& templates, const JobSecrets& secrets) {
  if (job.sync_mode == "local") {
    throw UsageError(
        "--sync-mode=local: the kubernetes backend has no folder of this machine: push "
        "the code and say --sync-mode=git, or build it into the image");
  }
  std::vector<Role> roles = job_roles(job);
  std::vector<Role> launcher;
  if (has_launcher(job)) {
    launcher.assign(roles.begin(), roles.begin() + 1);
    roles.erase(roles.begin());
  }
  check_roles(roles);
  check_names(job, roles);
  Plan plan;
  plan.job = job;
  plan.templates = templates;
  plan.secret_env = secrets.env;
  auto add = [&](const char* name, const json& data, const char* as = nullptr) {
    plan.documents.push_back({as == nullptr ? name : as, render_document(templates, name, data)});
  };
  json names = {{"name", job.name},
                {"namespace", job.namespace_name},
                {"job_object", role_job_name(job.name, k_worker_role)}};
  add(k_job_document, job_data(job, roles, secrets));
  add("service.yaml", names);
  add(k_config_document, config_data(job, templates));
  add(k_secret_document, secret_data(names, shown_contents(job, secrets)));
  if (!launcher.empty()) {
    add(k_job_document, job_data(job, launcher, secrets), "launcher.yaml");
  }
  return plan;
}

} // namespace dtrain::kubernetes
