#include "backends/supervised/gang/plan_text.h"

#include "submit/errors.h"
#include "submit/gpu_view.h"
#include "submit/job_roles.h"
#include "submit/start_command.h"
#include "submit/template/templates.h"
#include "submit/text/quantity.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <yaml-cpp/yaml.h>

#include <algorithm>

namespace dtrain {

namespace {

constexpr const char* k_measure = "measure"; ///< Of --check-gpus, and so in plans.

const TemplateRules& template_rules() {
  static const TemplateRules rules = {.is_identity =
                                          [](std::string_view path, std::string_view key) {
                                            return path.empty() ? key == "kind" || key == "name" ||
                                                                      key == "namespace"
                                                                : key == "instance";
                                          },
                                      .list = "ranks"};
  return rules;
}

std::vector<std::string> rank_command(const JobSpec& job, const GangSite& site) {
  if (job.runs_images_own_program()) {
    throw UsageError(fmt::format(
        "the {} backend runs no images, so a volcanojob needs a command: give it after --",
        job.backend));
  }
  if (!job.runs_bundled_trainer()) {
    return start_command(job);
  }
  if (site.trainer.empty()) {
    throw Error("the bundled trainer (dtrain-trainer) is not beside dtrain: install it there, set "
                "DTRAIN_TRAINER=PATH, or give a command after --");
  }
  std::vector<std::string> command{site.trainer};
  command.insert(command.end(), job.command.begin(), job.command.end());
  return command;
}

/// A string of the plan: text that is not UTF-8 is written as !!binary.
std::string read_string(const YAML::Node& node) {
  if (node.Tag() != "tag:yaml.org,2002:binary") {
    return node.as<std::string>();
  }
  const auto bytes = YAML::DecodeBase64(node.as<std::string>());
  return {bytes.begin(), bytes.end()};
}

/// true, false or "measure".
nlohmann::json gpu_check_data(const JobSpec& job) {
  if (job.check_gpus == k_measure) {
    return k_measure;
  }
  return job.check_gpus != "off";
}

/// Plans of before November 2026 have none.
GpuCheck read_gpu_check(const YAML::Node& node) {
  return !node                                 ? GpuCheck::driver
         : node.as<std::string>() == k_measure ? GpuCheck::measured
         : node.as<bool>()                     ? GpuCheck::driver
                                               : GpuCheck::none;
}

YAML::Node get(const YAML::Node& map, const char* key) {
  const auto node = map[key];
  if (!node) {
    throw EngineError(fmt::format("the plan has no {}", key));
  }
  return node;
}

/// If there is code, a relative folder is relative to it.
std::string working_dir(const JobSpec& job, const GangSite& site, const std::string& code_dir) {
  if (job.sync_mode.empty()) {
    return job.working_dir.empty() ? site.working_dir : job.working_dir;
  }
  return job.working_dir.starts_with('/') ? job.working_dir
         : job.working_dir.empty()        ? code_dir
                                          : code_dir + "/" + job.working_dir;
}

/// "KEY=***" of each.
std::vector<std::string> names_of(const std::vector<std::string>& variables) {
  std::vector<std::string> names;
  names.reserve(variables.size());
  for (const std::string& variable : variables) {
    names.push_back(variable.substr(0, variable.find('=')) + "=***");
  }
  return names;
}

/// 0: none.
std::int64_t log_limit_bytes(const JobSpec& job) {
  constexpr double k_most = 0x1p62;
  return static_cast<std::int64_t>(std::min(quantity_of(job.log_limit).value_or(0), k_most));
}

/// A user's template may produce a plan that the supervisor cannot read.
void require_readable(const Plan& plan, const std::string& name) {
  const auto own = plan.templates.own.find(name);
  if (own == plan.templates.own.end()) {
    return;
  }
  try {
    read_gang_plan(plan.documents.front().text);
  } catch (const EngineError& error) {
    throw UsageError(fmt::format("{}: {}", printable(own->second.path), error.what()));
  }
}

} // namespace

std::vector<GangRank> planned_ranks(const JobSpec& job, bool on_hosts) {
  std::vector<GangRank> ranks;
  for (const Role& role : job_roles(job)) {
    if (!role.runs_command && !on_hosts) {
      ranks.front().gpus += role.replicas * role.gpus;
      continue;
    }
    for (int index = 0; index < role.replicas; ++index) {
      const bool is_chief = ranks.empty();
      GangRank& rank = ranks.emplace_back();
      rank.instance = instance_name(role.name, index);
      rank.role = role.name;
      rank.index = index;
      rank.gpus = role.gpus;
      if (!role.runs_command) {
        rank.command = {"sleep", "2147483647"};
      }
      rank.decides = (role.ranked || role.name == k_launcher) &&
                     (is_chief || job.success_policy != "ChiefWorker");
    }
  }
  return ranks;
}

Plan render_gang_plan(const JobSpec& job, const GangSite& site, const Templates& templates,
                      GangParts parts) {
  Plan plan;
  plan.job = job;
  plan.templates = templates;
  plan.notices = std::move(parts.notices);
  const JobType& type = *find_job_type(job.type);
  if (job.tensorboard && site.tensorboard.empty()) {
    plan.notices.emplace_back("--tensorboard: TensorBoard is not in PATH, so the job runs without "
                              "it (pip install tensorboard)");
  } else if (job.tensorboard) {
    GangRank& board = parts.ranks.emplace_back();
    board.instance = instance_name(k_tensorboard, 0);
    board.role = k_tensorboard;
    board.host = parts.ranks.front().host;
    board.decides = false;
    board.devices = job.gpus > 0 ? std::optional<std::string>("") : std::nullopt;
    board.command = {site.tensorboard, "--logdir=" + job.logdir, "--host=localhost"};
  }
  plan.secret_env = site.secret_env;
  auto ranks = nlohmann::json::array();
  for (const GangRank& rank : parts.ranks) {
    ranks.push_back({{"instance", rank.instance},
                     {"role", rank.role},
                     {"host", rank.host},
                     {"index", rank.index},
                     {"gpus", rank.gpus},
                     {"decides", rank.decides},
                     {"own_command", nlohmann::json::array()},
                     {"has_devices", rank.devices.has_value()},
                     {"devices", rank.devices.value_or("")}});
    if (!rank.command.empty()) {
      ranks.back()["own_command"].push_back({{"words", rank.command}});
    }
  }
  auto mounts = nlohmann::json::array();
  for (const Mount& mount : parts.mounts) {
    mounts.push_back(
        {{"source", mount.source}, {"target", mount.target}, {"read_only", mount.read_only}});
  }
  nlohmann::json data = {{"name", job.name},
                         {"namespace", job.namespace_name},
                         {"trainer", type.trainer},
                         {"priority", job.priority},
                         {"max_restarts", job.max_restarts},
                         {"elastic", nlohmann::json::array()},
                         {"grace_period_ms", job.grace_period_ms},
                         {"gpus_visible", gpu_view_name(gpu_view(job))},
                         {"gpus_shared", parts.gpus_shared},
                         {"check_gpus", gpu_check_data(job)},
                         {"running_timeout_ms", job.running_timeout_ms},
                         {"ttl_ms", job.ttl_after_finished_ms},
                         {"log_limit", log_limit_bytes(job)},
                         {"labels", job.labels},
                         {"clean_tasks", job.clean_task_policy != "None"},
                         {"working_dir", working_dir(job, site, parts.code_dir)},
                         {"interface", site.interface},
                         {"host_timeout_ms", site.host_timeout_ms},
                         {"hosts", nlohmann::json::array()},
                         {"mounts", std::move(mounts)},
                         {"secrets", names_of(site.secret_env)},
                         {"command", rank_command(job, site)},
                         {"env", job.env},
                         {"ranks", std::move(ranks)}};
  for (const HostSlots& host : site.hosts) {
    data["hosts"].push_back({{"name", host.name},
                             {"slots", host.slots},
                             {"has_gpus", !host.gpus.empty()},
                             {"gpus", host.gpus},
                             {"has_without", !host.without_gpus.empty()},
                             {"without_gpus", host.without_gpus}});
  }
  for (const char* section : {"launcher", "torchrun", "ordered"}) {
    data[section] = nlohmann::json::array();
  }
  if (type.has_launcher) {
    const bool holds_all = parts.ranks.size() == 1;
    data["launcher"].push_back({{"slots", (holds_all ? job.workers : 1) * slots_per_worker(job)}});
  }
  if (!job.nproc_per_node.empty()) {
    data["torchrun"].push_back({{"processes", job.nproc_per_node}});
  }
  if (!job.role_sequence.empty()) {
    data["ordered"].push_back({{"roles", role_start_order(job)}});
  }
  if (job.min_workers > 0) {
    data["elastic"].push_back({{"min", job.min_workers}, {"max", job.max_workers}});
  }
  plan.documents.push_back(
      {"job.yaml", fill_template(templates, parts.template_name, data, template_rules())});
  require_readable(plan, parts.template_name);
  return plan;
}

GangPlan read_gang_plan(const std::string& text) {
  GangPlan plan;
  try {
    const auto root = YAML::Load(text);
    plan.job.name = read_string(get(root, "name"));
    plan.job.namespace_name = read_string(get(root, "namespace"));
    plan.trainer = read_string(get(root, "trainer"));
    plan.priority = read_string(get(root, "priority"));
    plan.max_restarts = get(root, "maxRestarts").as<int>();
    plan.grace_period_ms = get(root, "gracePeriodMilliseconds").as<int>();
    if (const auto view = root["gpusVisible"]) { // Plans of before November 2026 have none.
      plan.gpu_view = parse_gpu_view(read_string(view));
    }
    plan.gpus_shared = get(root, "gpusShared").as<std::size_t>();
    plan.gpu_check = read_gpu_check(root["checkGpus"]);
    plan.running_timeout_ms = get(root, "runningTimeoutMilliseconds").as<int>();
    plan.ttl_ms = get(root, "keptMilliseconds").as<int>();
    plan.log_limit = get(root, "logLimitBytes").as<std::int64_t>();
    for (const auto& label : get(root, "labels")) {
      plan.labels.push_back(read_string(label));
    }
    plan.clean_tasks = get(root, "cleanTasks").as<bool>();
    plan.min_workers = root["minWorkers"] ? root["minWorkers"].as<int>() : 0;
    plan.max_workers = root["maxWorkers"] ? root["maxWorkers"].as<int>() : 0;
    plan.launcher_slots = root["launcherSlots"] ? root["launcherSlots"].as<int>() : 0;
    if (const auto processes = root["torchrunProcesses"]) {
      plan.torchrun_processes = read_string(processes);
    }
    for (const auto& role : root["startOrder"]) {
      plan.start_order.push_back(read_string(role));
    }
    plan.working_dir = read_string(get(root, "workingDir"));
    plan.interface = root["interface"] ? read_string(root["interface"]) : "";
    plan.host_timeout_ms =
        root["hostTimeoutMilliseconds"] ? root["hostTimeoutMilliseconds"].as<int>() : 0;
    for (const auto& word : get(root, "command")) {
      plan.command.push_back(read_string(word));
    }
    for (const auto& entry : get(root, "env")) {
      const auto variable = read_string(entry);
      const auto equals = std::min(variable.find('='), variable.size());
      plan.env.emplace_back(variable.substr(0, equals),
                            variable.substr(std::min(equals + 1, variable.size())));
    }
    for (const auto& node : get(root, "mounts")) {
      plan.mounts.push_back({read_string(get(node, "source")), read_string(get(node, "target")),
                             get(node, "readOnly").as<bool>()});
    }
    for (const auto& node : root["hosts"]) {
      auto& host = plan.hosts.emplace_back();
      host.name = read_string(get(node, "name"));
      host.slots = get(node, "slots").as<int>();
      for (const auto& [key, gpus] :
           {std::pair("gpus", &host.gpus), std::pair("withoutGpus", &host.without_gpus)}) {
        for (const auto& gpu : node[key]) {
          gpus->push_back(read_string(gpu));
        }
      }
    }
    for (const auto& node : get(root, "ranks")) {
      GangRank rank;
      rank.instance = read_string(get(node, "instance"));
      rank.role = read_string(get(node, "role"));
      rank.host = node["host"] ? read_string(node["host"]) : "";
      rank.index = get(node, "index").as<int>();
      rank.gpus = get(node, "gpus").as<int>();
      rank.decides = get(node, "decides").as<bool>();
      for (const auto& word : node["command"]) {
        rank.command.push_back(read_string(word));
      }
      if (const auto devices = node["devices"]) {
        rank.devices = read_string(devices);
      }
      plan.ranks.push_back(std::move(rank));
    }
  } catch (const YAML::Exception& error) {
    throw EngineError(fmt::format("the plan cannot be read: {}", printable(error.what())));
  }
  if (plan.command.empty() || plan.ranks.empty()) {
    throw EngineError("the plan has no command or no ranks");
  }
  return plan;
}

GangSite site_of(const GangPlan& plan, const JobSpec& job) {
  GangSite site;
  site.working_dir = plan.working_dir;
  site.trainer = job.runs_bundled_trainer() ? plan.command.front() : "";
  site.hosts = plan.hosts;
  site.interface = plan.interface;
  site.host_timeout_ms = plan.host_timeout_ms;
  for (const GangRank& rank : plan.ranks) {
    if (rank.role == k_tensorboard) {
      site.tensorboard = rank.command.front();
    }
  }
  for (const std::string& text : job.data) {
    const MountText mount = parse_mount("--data", text);
    for (const Mount& each : plan.mounts) {
      if (each.target == mount.target) {
        site.data_folders[mount.source] = each.source;
      }
    }
  }
  return site;
}

} // namespace dtrain
