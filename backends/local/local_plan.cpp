#include "backends/local/local_plan.h"

#include "backends/local/gpus.h"
#include "submit/errors.h"
#include "submit/job_fields.h"
#include "submit/render.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <yaml-cpp/yaml.h>

namespace dtrain {

namespace {

constexpr const char* k_template = "local/job.yaml";
constexpr const char* k_trainer = "DTRAINJOB";

std::vector<std::string> rank_command(const JobSpec& job, const LocalMachine& machine) {
  if (!job.runs_bundled_trainer()) {
    return job.command;
  }
  if (machine.trainer.empty()) {
    throw Error("the bundled trainer (dtrain-trainer) is not beside dtrain: install it there, name "
                "it with DTRAIN_TRAINER=PATH, or give a command after --");
  }
  std::vector<std::string> command{machine.trainer};
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

/// Nothing that was asked for is dropped in silence.
void refuse_container_fields(const JobSpec& job) {
  for (const JobField& field : job_fields()) {
    if (field.group == std::string_view(k_container_group) && !is_default(job, field)) {
      throw UsageError(fmt::format("{}: the local backend runs no containers: leave it out, or "
                                   "choose --backend=kubernetes",
                                   field.flags));
    }
  }
}

} // namespace

Plan render_local_plan(const JobSpec& job, const LocalMachine& machine) {
  refuse_container_fields(job);
  Plan plan;
  plan.job = job;
  std::optional<std::vector<std::string>> devices;
  if (job.gpus > 0) {
    devices = assign_gpus(machine.gpus, job.workers, job.gpus);
    if (!devices) {
      const auto lack = fmt::format("{} GPUs asked for ({} a worker), {} here",
                                    static_cast<std::int64_t>(job.workers) * job.gpus, job.gpus,
                                    machine.gpus.size());
      if (job.require_gpus) {
        throw EngineError(lack + ": ask for fewer, or leave --require-gpus out to run on the CPU");
      }
      plan.notices.push_back(lack + ": running on the CPU (--require-gpus makes this an error)");
    }
  }
  auto ranks = nlohmann::json::array();
  for (int rank = 0; rank < job.workers; ++rank) {
    ranks.push_back({{"instance", instance_name("worker", rank)},
                     {"sets_devices", job.gpus > 0},
                     {"devices", devices ? (*devices)[static_cast<std::size_t>(rank)] : ""}});
  }
  const nlohmann::json data = {
      {"name", job.name},
      {"namespace", job.namespace_name},
      {"trainer", k_trainer},
      {"priority", job.priority},
      {"gpus", job.gpus},
      {"max_restarts", job.max_restarts},
      {"grace_period_ms", job.grace_period_ms},
      {"working_dir", job.working_dir.empty() ? machine.working_dir : job.working_dir},
      {"command", rank_command(job, machine)},
      {"env", job.env},
      {"ranks", std::move(ranks)}};
  plan.documents.push_back(
      {"job.yaml", render_template(k_template, builtin_template(k_template).text, data)});
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
    plan.gpus_requested = get(root, "gpus").as<int>();
    plan.max_restarts = get(root, "maxRestarts").as<int>();
    plan.grace_period_ms = get(root, "gracePeriodMilliseconds").as<int>();
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
    for (const auto& node : get(root, "ranks")) {
      GangRank rank;
      rank.instance = read_string(get(node, "instance"));
      if (const auto devices = node["visibleDevices"]) {
        rank.devices = read_string(devices);
        plan.gpus_allocated = rank.devices->empty() ? 0 : plan.gpus_requested;
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

} // namespace dtrain
