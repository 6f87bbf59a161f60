#include "backends/batch/script_data.h"

#include "backends/batch/identity.h"
#include "backends/batch/records_here.h"
#include "submit/errors.h"
#include "submit/gpu_view.h"
#include "submit/job_roles.h"
#include "submit/rank_env.h"
#include "submit/start_command.h"
#include "submit/template/render.h"
#include "submit/template/sections.h"
#include "submit/text/quantity.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

namespace dtrain::batch {

using nlohmann::json;

bool has_launcher(const JobSpec& job) { return find_job_type(job.type)->has_launcher; }

json words(const std::vector<std::string>& texts) {
  auto list = json::array();
  for (const std::string& text : texts) {
    list.push_back({{"word", text}});
  }
  return list;
}

namespace {

/// Variables that the script has from the queue, not from the job.
const std::set<std::string, std::less<>> k_of_the_script = {
    "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK", "ROLE_RANK",
    "GROUP_WORLD_SIZE", "TF_CONFIG", "MASTER_ADDR", "MASTER_PORT", "PET_NODE_RANK",
    "PET_MASTER_ADDR", "PET_MASTER_PORT", "DTRAIN_JOB_UID", "DTRAIN_JOB_TOKEN",
    "DTRAIN_RESTART_COUNT",
    // Open MPI asks the queue itself.
    "OMPI_MCA_orte_default_hostfile", "PRTE_MCA_prte_default_hostfile", "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_RESTART_COUNT"};

std::vector<Step> role_steps(const std::vector<Role>& roles) {
  std::vector<Step> steps;
  int first = 0;
  for (const Role& role : roles) {
    if (steps.empty() || steps.back().gpus != role.gpus || steps.back().ranked != role.ranked ||
        !role.ranked) {
      steps.push_back({.first = first,
                       .tasks = 0,
                       .gpus = role.gpus,
                       .ranked = role.ranked,
                       .kind = role.ranked                ? "decides"
                               : role.name == k_evaluator ? "evaluates"
                                                          : "helps"});
    }
    steps.back().tasks += role.replicas;
    first += role.replicas;
  }
  return steps;
}

GangPlace gang_of(const JobSpec& job, const std::vector<Role>& roles, const std::string& folder) {
  GangPlace gang;
  if (has_launcher(job)) {
    gang.launcher_slots = slots_per_worker(job);
    gang.hostfile_path = folder + "/hostfile";
  }
  gang.job_name = job.name;
  gang.namespace_name = job.namespace_name;
  gang.max_restarts = job.max_restarts;
  gang.torchrun_nproc = job.nproc_per_node;
  for (const Role& role : roles) {
    for (int i = 0; i < role.replicas; ++i) {
      gang.ranks.push_back({.role = role.name, .index = i, .host = {}, .port = 0});
    }
  }
  return gang;
}

/// For show_gpus() of the script. If other ranks of the job have GPUs, one without sees none; a
/// launcher sees to its own.
std::string_view view_of(const JobSpec& job, const Role& role) {
  const bool sees_none = role.gpus == 0 && job.gpus + job.ps_gpus > 0 && !has_launcher(job);
  return sees_none ? "none" : gpu_view_name(role.ranked ? gpu_view(job) : GpuView::rank);
}

json roles_data(const JobSpec& job, const std::vector<Role>& roles, const std::string& folder) {
  const GangPlace gang = gang_of(job, roles, folder);
  auto list = json::array();
  int first = 0;
  for (const Role& role : roles) {
    if (!role.runs_command) {
      continue;
    }
    auto environment = json::array();
    for (const auto& [name, value] : rank_env(gang, first)) {
      if (!k_of_the_script.contains(name)) {
        environment.push_back({{"name", name}, {"value", value}});
      }
    }
    list.push_back(
        {{"role", role.name},
         {"type", role.name == k_master ? k_chief : role.name},
         {"first", first},
         {"end", first + role.replicas},
         {"environment", environment},
         {"gpus", role.gpus},
         {"view", view_of(job, role)},
         {"ranked", section(role.ranked, json::object())},
         {"torchrun", section(role.ranked && !job.nproc_per_node.empty(), json::object())}});
    first += role.replicas;
  }
  return list;
}

int slots_a_worker(const JobSpec& job) { return has_launcher(job) ? slots_per_worker(job) : 1; }

std::vector<std::string> command_of(const JobSpec& job, const LoginFacts& login,
                                    const QueueSystem& system) {
  std::vector<std::string> command = start_command(job);
  if (job.runs_bundled_trainer()) {
    if (login.trainer.empty()) {
      throw UsageError(
          fmt::format("the bundled trainer (dtrain-trainer) is not in PATH on the host that runs "
                      "{}'s commands: install it there, or give a command after --",
                      system.name));
    }
    command.insert(command.begin(), login.trainer);
  }
  return command;
}

/// The folder in which the command starts; a relative path is relative to the code, or to the
/// folder where `submit` was called.
std::string working_dir(const JobSpec& job, const std::string& own_folder,
                        const LoginFacts& login) {
  const std::string base = job.sync_mode.empty() ? login.working_dir : own_folder + "/code";
  return job.working_dir.empty()            ? base
         : job.working_dir.starts_with('/') ? job.working_dir
                                            : base + "/" + job.working_dir;
}

/// Paths that must exist on every node. Ranks have no mounts: the data is found at its path, or
/// not.
json data_places(const JobSpec& job, const QueueSystem& system) {
  std::vector<std::string> paths;
  for (const auto& [flag, texts] :
       {std::pair("--data-dir", &job.data_dirs), std::pair("--config-file", &job.config_files)}) {
    for (const std::string& text : *texts) {
      const MountText mount = parse_mount(flag, text);
      if (mount.source != mount.target || mount.read_only) {
        throw UsageError(fmt::format("{}={}: {} ranks see the node's own file system, so {} cannot "
                                     "be mounted elsewhere or read-only: use {}={}",
                                     flag, printable(text), system.name, printable(mount.source),
                                     flag, printable(mount.source)));
      }
      paths.push_back(mount.source);
    }
  }
  return words(paths);
}

} // namespace

std::vector<Step> steps_of(const JobSpec& job) {
  if (has_launcher(job)) {
    return {
        {.first = 0, .tasks = job.workers * slots_a_worker(job), .gpus = std::min(job.gpus, 1)}};
  }
  return role_steps(job_roles(job));
}

int cpus_of(const JobSpec& job) {
  const std::string& text = job.worker_cpu.empty() ? job.cpu : job.worker_cpu;
  return static_cast<int>(std::ceil(quantity_of(text).value_or(0) / slots_a_worker(job)));
}

std::optional<double> memory_of(const JobSpec& job) {
  const std::string& text = job.worker_memory.empty() ? job.memory : job.worker_memory;
  const auto bytes = quantity_of(text);
  return bytes ? std::optional<double>(*bytes / slots_a_worker(job)) : std::nullopt;
}

json script_data(const JobSpec& job, const LoginFacts& login, const QueueSystem& system) {
  const bool launched = has_launcher(job);
  const JobRef ref{job.namespace_name, job.name};
  const std::string folder = fmt::format("{}/{}", login.state_folder, job_folder(system, ref));
  int tasks = 0;
  for (const Step& step : steps_of(job)) {
    tasks += step.tasks;
  }
  return {{"name", job.name},
          {"namespace", job.namespace_name},
          {"comment", comment_of(ref)},
          {"folder", folder},
          {"tasks", tasks},
          {"started", launched ? 1 : tasks},
          {"working_dir", working_dir(job, folder, login)},
          {"data", data_places(job, system)},
          {"checks_gpus",
           section(job.check_gpus != "off" && job.gpus + job.ps_gpus > 0, json::object())},
          {"measures_gpus",
           section(job.check_gpus == "measure" && job.gpus + job.ps_gpus > 0,
                   {{"trainer", login.trainer.empty() ? "dtrain-trainer" : login.trainer}})},
          {"max_restarts", job.max_restarts},
          {"chief_decides", job.success_policy == "ChiefWorker"},
          {"keeps_helpers", job.clean_task_policy == "None"},
          {"torchrun", section(!job.nproc_per_node.empty(), json::object())},
          {"roles", roles_data(job, job_roles(job), folder)},
          {"launcher", section(launched, {{"slots", slots_a_worker(job)}})},
          {"deepspeed", section(job.type == "deepspeedjob",
                                {{"tool", builtin_template("launchers/deepspeed.sh").text}})},
          {"user_environment", user_environment(job)},
          {"command", words(command_of(job, login, system))}};
}

} // namespace dtrain::batch
