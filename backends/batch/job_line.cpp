#include "backends/batch/job_line.h"

#include "backends/batch/queued_job.h"
#include "submit/job_roles.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace dtrain::batch {

using nlohmann::json;

std::vector<InstanceStatus> planned_instances(const JobSpec& job) {
  std::vector<InstanceStatus> instances;
  for (const Role& role : job_roles(job)) {
    for (int i = 0; i < role.replicas; ++i) {
      InstanceStatus& instance = instances.emplace_back();
      instance.name = instance_name(role.name, i);
      instance.gpus = role.gpus;
      instance.is_chief = instances.size() == 1;
    }
  }
  return instances;
}

std::string write_job_line(const JobSpec& job, const QueueOptions& options, const std::string& id,
                           Time now, const std::string& cluster, Time submitted) {
  auto instances = json::array();
  int gpus = 0;
  for (const InstanceStatus& each : planned_instances(job)) {
    instances.push_back({each.name, each.gpus});
    gpus += each.gpus;
  }
  json object = {{"id", id},
                 {"name", job.name},
                 {"namespace", job.namespace_name},
                 {"trainer", find_job_type(job.type)->trainer},
                 {"priority", job.priority},
                 {"created", now},
                 {"cluster", cluster},
                 {"submitted", submitted / k_second},
                 {"gpus", gpus},
                 {"labels", job.labels},
                 {"maxRestarts", job.max_restarts},
                 {"requeue", options.may_requeue},
                 {"instances", std::move(instances)}};
  if (!options.array.empty()) {
    object["array"] = options.array;
    object["tasks"] = read_indexes(options.array).size();
  }
  const std::string line = "job " + object.dump() + "\n";
  const auto [before, after] = around_id(line);
  return fmt::format("{}{:{}}{}", before, json(id).dump(), k_id_width, after);
}

std::pair<std::string, std::string> around_id(const std::string& line) {
  constexpr std::string_view k_id = R"("id":)";
  const auto at = line.find(k_id) + k_id.size();
  return {line.substr(0, at), line.substr(line.find_first_of(",}", at))};
}

} // namespace dtrain::batch
