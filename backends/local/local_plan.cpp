#include "backends/local/local_plan.h"

#include "backends/local/gpus.h"
#include "backends/local/shares.h"
#include "backends/support/bucket/bucket_copy.h"
#include "submit/errors.h"
#include "submit/job_roles.h"
#include "submit/start_command.h"
#include "submit/template/templates.h"
#include "submit/text/quantity.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <iterator>
#include <numeric>

namespace dtrain {

namespace {

constexpr const char* k_template = "local/job.yaml";

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

std::vector<std::string> rank_command(const JobSpec& job, const Surroundings& here) {
  if (job.runs_images_own_program()) {
    throw UsageError("a volcanojob without a command runs its images' own programs, and the local "
                     "backend runs no images: give the command after --");
  }
  if (!job.runs_bundled_trainer()) {
    return start_command(job);
  }
  if (here.trainer.empty()) {
    throw Error("the bundled trainer (dtrain-trainer) is not beside dtrain: install it there, name "
                "it with DTRAIN_TRAINER=PATH, or give a command after --");
  }
  std::vector<std::string> command{here.trainer};
  command.insert(command.end(), job.command.begin(), job.command.end());
  return command;
}

/// A string of the plan: what is not UTF-8 is written as !!binary.
std::string read_string(const YAML::Node& node) {
  if (node.Tag() != "tag:yaml.org,2002:binary") {
    return node.as<std::string>();
  }
  const auto bytes = YAML::DecodeBase64(node.as<std::string>());
  return {bytes.begin(), bytes.end()};
}

YAML::Node get(const YAML::Node& map, const char* key) {
  const auto node = map[key];
  if (!node) {
    throw EngineError(fmt::format("the plan lacks {}", key));
  }
  return node;
}

/// With code, a relative folder is one of it.
std::string working_dir(const JobSpec& job, const Surroundings& here, const std::string& code_dir) {
  if (job.sync_mode.empty()) {
    return job.working_dir.empty() ? here.working_dir : job.working_dir;
  }
  return job.working_dir.starts_with('/') ? job.working_dir
         : job.working_dir.empty()        ? code_dir
                                          : code_dir + "/" + job.working_dir;
}

/// "SERVER:/PATH" of nfs://SERVER/PATH; empty of what is no share.
std::string share_of(const std::string& source) {
  constexpr std::string_view k_scheme = "nfs://";
  if (!source.starts_with(k_scheme)) {
    return "";
  }
  std::string share = source.substr(k_scheme.size());
  share.insert(std::min(share.find('/'), share.size()), ":");
  return share;
}

/// The folder of this machine that shows what --data names. Throws UsageError where none does.
std::string folder_of(const std::string& text, const std::string& source,
                      const Surroundings& here) {
  if (const auto found = here.data_folders.find(source); found != here.data_folders.end()) {
    return found->second;
  }
  if (const auto share = share_of(source); !share.empty()) {
    throw UsageError(
        fmt::format("--data={}: {} is not mounted on this machine: mount it (mount -t "
                    "nfs {} DIR), and name its folder: dtrain data add NAME --path=DIR",
                    printable(text), printable(share), printable(share)));
  }
  if (source.find("://") != std::string::npos) {
    throw UsageError(
        fmt::format("--data={}: the local backend mounts no such volume: have the data "
                    "here, and name its folder: dtrain data add NAME --path=DIR",
                    printable(text)));
  }
  if (source.starts_with('/')) {
    throw UsageError(fmt::format("--data={}: a folder of this machine is --data-dir={}",
                                 printable(text), printable(text)));
  }
  throw NotFound(fmt::format("--data={}: no data has that name (claims are for Kubernetes): "
                             "'dtrain data list' shows what there is, 'dtrain data add NAME "
                             "--path=DIR' adds some",
                             printable(text)));
}

nlohmann::json mounts_of(const JobSpec& job, const Surroundings& here) {
  auto mounts = nlohmann::json::array();
  for (const std::string& text : job.data) {
    const MountText mount = parse_mount("--data", text);
    mounts.push_back({{"source", folder_of(text, mount.source, here)},
                      {"target", mount.target},
                      {"read_only", mount.read_only || is_bucket(mount.source)}});
  }
  for (const auto& [flag, texts] :
       {std::pair("--data-dir", &job.data_dirs), std::pair("--config-file", &job.config_files)}) {
    for (const std::string& text : *texts) {
      const MountText mount = parse_mount(flag, text);
      mounts.push_back(
          {{"source", mount.source}, {"target", mount.target}, {"read_only", mount.read_only}});
    }
  }
  return mounts;
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

/// What this machine starts of the job, in the order of ranks. Of a job with a launcher that is the
/// launcher alone, which holds the GPUs of the workers that it starts.
std::vector<GangRank> planned_ranks(const JobSpec& job) {
  std::vector<GangRank> ranks;
  for (const Role& role : job_roles(job)) {
    if (!role.runs_command) {
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
      rank.decides = (role.ranked || role.name == k_launcher) &&
                     (is_chief || job.success_policy != "ChiefWorker");
    }
  }
  return ranks;
}

/// Gives every rank GPUs of its own, or none to all where there are too few. Returns how many of
/// them other jobs have too.
int assign_devices(const JobSpec& job, const Surroundings& here, std::vector<GangRank>& ranks,
                   Plan& plan) {
  std::vector<int> wanted;
  std::transform(ranks.begin(), ranks.end(), std::back_inserter(wanted),
                 [](const GangRank& rank) { return rank.gpus; });
  const int sum = std::accumulate(wanted.begin(), wanted.end(), 0);
  if (sum == 0) {
    return 0;
  }
  const auto devices = assign_gpus(here.gpus, wanted);
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    ranks[i].devices = devices ? (*devices)[i] : "";
  }
  if (devices) {
    const auto free = static_cast<int>(here.gpus.size() - here.gpus_in_use);
    if (sum > free) {
      plan.notices.push_back(fmt::format("{} of {} GPUs are in use by other jobs too: see dtrain "
                                         "list",
                                         sum - free, sum));
    }
    return std::max(sum - free, 0);
  }
  const auto lack = fmt::format("{} GPU{} asked for ({} a worker), {} here", sum,
                                sum == 1 ? "" : "s", job.gpus, here.gpus.size());
  if (job.require_gpus) {
    throw EngineError(lack + ": ask for fewer, or leave --require-gpus out to run on the CPU");
  }
  plan.notices.push_back(lack + ": running on the CPU (--require-gpus makes this an error)");
  return 0;
}

/// 0: none.
std::int64_t log_limit_bytes(const JobSpec& job) {
  constexpr double k_most = 0x1p62;
  return static_cast<std::int64_t>(std::min(quantity_of(job.log_limit).value_or(0), k_most));
}

/// A user's template may have made what the supervisor could not read.
void require_readable(const Plan& plan) {
  const auto own = plan.templates.own.find(k_template);
  if (own == plan.templates.own.end()) {
    return;
  }
  try {
    read_local_plan(plan.documents.front().text);
  } catch (const EngineError& error) {
    throw UsageError(fmt::format("{}: {}", printable(own->second.path), error.what()));
  }
}

} // namespace

std::map<std::string, std::string> data_folders(const JobSpec& job) {
  std::map<std::string, std::string> folders;
  for (const std::string& text : job.data) {
    const auto source = parse_mount("--data", text).source;
    const auto share = share_of(source);
    const auto folder = is_bucket(source) ? bucket_folder(parse_bucket("--data", source))
                        : !share.empty()  ? find_share(share)
                                          : "";
    if (!folder.empty()) {
      folders[source] = folder;
    }
  }
  return folders;
}

std::map<std::string, std::string> data_folders(const JobSpec& job, const GangPlan& plan) {
  std::map<std::string, std::string> folders;
  for (const std::string& text : job.data) {
    const MountText mount = parse_mount("--data", text);
    for (const Mount& each : plan.mounts) {
      if (each.target == mount.target) {
        folders[mount.source] = each.source;
      }
    }
  }
  return folders;
}

Plan render_local_plan(const JobSpec& job, const Surroundings& here, const std::string& code_dir,
                       const Templates& templates) {
  Plan plan;
  plan.job = job;
  plan.templates = templates;
  const JobType& type = *find_job_type(job.type);
  auto planned = planned_ranks(job);
  const int shared = assign_devices(job, here, planned, plan);
  if (job.tensorboard && here.tensorboard.empty()) {
    plan.notices.emplace_back("--tensorboard: TensorBoard is not in PATH: the job runs without it "
                              "(pip install tensorboard)");
  } else if (job.tensorboard) {
    GangRank& board = planned.emplace_back();
    board.instance = instance_name(k_tensorboard, 0);
    board.role = k_tensorboard;
    board.decides = false;
    board.devices = job.gpus > 0 ? std::optional<std::string>("") : std::nullopt;
    board.command = {here.tensorboard, "--logdir=" + job.logdir, "--host=localhost"};
  }
  plan.secret_env = here.secret_env;
  auto ranks = nlohmann::json::array();
  for (const GangRank& rank : planned) {
    ranks.push_back({{"instance", rank.instance},
                     {"role", rank.role},
                     {"index", rank.index},
                     {"gpus", rank.gpus},
                     {"decides", rank.decides},
                     {"own_command", nlohmann::json::array()},
                     {"sets_devices", rank.devices.has_value()},
                     {"devices", rank.devices.value_or("")}});
    if (!rank.command.empty()) {
      ranks.back()["own_command"].push_back({{"words", rank.command}});
    }
  }
  nlohmann::json data = {{"name", job.name},
                         {"namespace", job.namespace_name},
                         {"trainer", type.trainer},
                         {"priority", job.priority},
                         {"max_restarts", job.max_restarts},
                         {"elastic", nlohmann::json::array()},
                         {"grace_period_ms", job.grace_period_ms},
                         {"gpus_shared", shared},
                         {"running_timeout_ms", job.running_timeout_ms},
                         {"ttl_ms", job.ttl_after_finished_ms},
                         {"log_limit", log_limit_bytes(job)},
                         {"labels", job.labels},
                         {"clean_tasks", job.clean_task_policy != "None"},
                         {"working_dir", working_dir(job, here, code_dir)},
                         {"mounts", mounts_of(job, here)},
                         {"secrets", names_of(here.secret_env)},
                         {"command", rank_command(job, here)},
                         {"env", job.env},
                         {"ranks", std::move(ranks)}};
  for (const char* section : {"launcher", "torchrun", "ordered"}) {
    data[section] = nlohmann::json::array();
  }
  if (type.has_launcher) {
    data["launcher"].push_back({{"slots", job.workers * slots_per_worker(job)}});
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
      {"job.yaml", fill_template(templates, k_template, data, template_rules())});
  require_readable(plan);
  return plan;
}

GangPlan read_local_plan(const std::string& text) {
  GangPlan plan;
  try {
    const auto root = YAML::Load(text);
    plan.job.name = read_string(get(root, "name"));
    plan.job.namespace_name = read_string(get(root, "namespace"));
    plan.trainer = read_string(get(root, "trainer"));
    plan.priority = read_string(get(root, "priority"));
    plan.max_restarts = get(root, "maxRestarts").as<int>();
    plan.grace_period_ms = get(root, "gracePeriodMilliseconds").as<int>();
    plan.gpus_shared = get(root, "gpusShared").as<std::size_t>();
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
    for (const auto& node : get(root, "ranks")) {
      GangRank rank;
      rank.instance = read_string(get(node, "instance"));
      rank.role = read_string(get(node, "role"));
      rank.index = get(node, "index").as<int>();
      rank.gpus = get(node, "gpus").as<int>();
      rank.decides = get(node, "decides").as<bool>();
      for (const auto& word : node["command"]) {
        rank.command.push_back(read_string(word));
      }
      if (const auto devices = node["visibleDevices"]) {
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

std::vector<std::string> devices_of(const GangPlan& plan) {
  std::vector<std::string> devices;
  for (const auto& rank : plan.ranks) {
    for (auto& device : visible_gpus(rank.devices.value_or(""))) {
      devices.push_back(std::move(device));
    }
  }
  return devices;
}

} // namespace dtrain
