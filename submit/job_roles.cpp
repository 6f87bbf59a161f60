#include "submit/job_roles.h"

#include "submit/errors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

namespace dtrain {
namespace {

Role make_role(const JobSpec& job, const std::string& name, int replicas) {
  return {.name = name, .replicas = replicas, .gpus = job.gpus, .ranked = is_ranked_role(name)};
}

std::string lower(std::string_view text) {
  std::string out;
  for (const char c : text) {
    out += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return out;
}

} // namespace

const std::vector<JobType>& job_types() {
  static const std::vector<JobType> all = {
      {.name = "tfjob", .trainer = "TFJOB", .alias = "tf"},
      {.name = "pytorchjob", .trainer = "PYTORCHJOB", .alias = "pytorch", .has_master = true},
      {.name = "mpijob", .trainer = "MPIJOB", .alias = "mpi", .has_launcher = true},
      {.name = "horovodjob", .trainer = "HOROVODJOB", .alias = "horovod", .has_launcher = true},
      {.name = "etjob", .trainer = "ETJOB", .alias = "et", .has_launcher = true},
      {.name = "deepspeedjob",
       .trainer = "DEEPSPEEDJOB",
       .alias = "deepspeed",
       .has_launcher = true},
      {.name = "rayjob", .trainer = "RAYJOB", .alias = "ray", .has_ray = true},
      {.name = "volcanojob", .trainer = "VOLCANOJOB", .alias = "volcano", .has_tasks = true},
      {.name = "", .trainer = "DTRAINJOB", .alias = ""},
  };
  return all;
}

const JobType* find_job_type(std::string_view word) {
  const std::string wanted = lower(word); // Kubeflow writes TFJob.
  const auto found = std::find_if(job_types().begin(), job_types().end(), [&](const JobType& type) {
    return type.name == wanted || (!type.alias.empty() && type.alias == wanted);
  });
  return found == job_types().end() ? nullptr : &*found;
}

const std::vector<std::pair<std::string_view, std::string_view>>& refused_job_types() {
  static const std::vector<std::pair<std::string_view, std::string_view>> all = {
      {"sparkjob", "Spark schedules its own executors; use spark-submit, or Arena"},
      {"spark", "Spark schedules its own executors; use spark-submit, or Arena"},
  };
  return all;
}

bool is_ranked_role(std::string_view role) {
  return role != k_ps && role != k_evaluator && role != k_launcher && role != k_tensorboard;
}

std::vector<Role> job_roles(const JobSpec& job) {
  const JobType& type = *find_job_type(job.type);
  std::vector<Role> roles;
  if (type.has_launcher) {
    roles.push_back(make_role(job, k_launcher, 1));
    roles.back().gpus = 0; // The launcher only starts what runs in the workers.
    roles.push_back(make_role(job, k_worker, job.workers));
    roles.back().runs_command = false;
    roles.back().ranked = false;
    return roles;
  }
  if (type.has_tasks) {
    for (std::size_t i = 0; i < job.task_images.size(); ++i) {
      roles.push_back(make_role(job, fmt::format("{}-{}", job.task_name, i), job.task_replicas));
    }
    return roles;
  }
  if (job.chief) {
    roles.push_back(make_role(job, k_chief, 1));
  }
  if (type.has_master) {
    roles.push_back(make_role(job, k_master, 1));
  }
  if (const int workers = job.workers - (type.has_master ? 1 : 0); workers > 0) {
    roles.push_back(make_role(job, k_worker, workers));
  }
  if (job.ps > 0) {
    roles.push_back(make_role(job, k_ps, job.ps));
    roles.back().gpus = job.ps_gpus;
  }
  if (job.evaluator) {
    roles.push_back(make_role(job, k_evaluator, 1));
  }
  return roles;
}

int slots_per_worker(const JobSpec& job) { return std::max(job.gpus, 1); }

std::vector<std::string> role_start_order(const JobSpec& job) {
  constexpr std::array<std::string_view, 4> k_known = {k_worker, k_ps, k_chief, k_evaluator};
  std::vector<std::string> order;
  for (std::size_t begin = 0; begin < job.role_sequence.size();) {
    const std::size_t end = std::min(job.role_sequence.find(',', begin), job.role_sequence.size());
    const std::string name = lower(std::string_view(job.role_sequence).substr(begin, end - begin));
    if (std::find(k_known.begin(), k_known.end(), name) == k_known.end() ||
        std::find(order.begin(), order.end(), name) != order.end()) {
      throw UsageError(fmt::format("--role-sequence={}: must name each of Worker, PS, Chief and "
                                   "Evaluator at most once, with commas between them",
                                   printable(job.role_sequence)));
    }
    order.push_back(name);
    begin = end + 1;
  }
  for (const Role& role : job_roles(job)) {
    if (std::find(order.begin(), order.end(), role.name) == order.end()) {
      order.push_back(role.name);
    }
  }
  return order;
}

} // namespace dtrain
