#include "submit/fields/job_field_groups.h"
#include "submit/job_roles.h"

#include <fmt/format.h>

namespace dtrain {
namespace {

constexpr const char* k_roles_group = "Roles";
constexpr int k_most_gpus = 64;
constexpr int k_last_port = 65535;

struct RoleFlags {
  const char* name; ///< "ps", of --ps-cpu.
  const char* what; ///< "each parameter server"
  RoleOptions JobSpec::*role;
  bool resources = true;
  bool image = false;
  bool port = false;
  bool selector = true;
  bool annotation = false;
};

JobField text_field(const RoleFlags& role, const char* key, const char* flag,
                    std::string RoleOptions::*part, const char* metavar, std::string help) {
  return {.key = fmt::format("{}{}", role.name, key),
          .flags = fmt::format("--{}-{}", role.name, flag),
          .member = member(role.role, part),
          .metavar = metavar,
          .help = std::move(help),
          .group = k_roles_group};
}

JobField list_field(const RoleFlags& role, const char* key, const char* flag,
                    std::vector<std::string> RoleOptions::*part, std::string help) {
  return {.key = fmt::format("{}{}", role.name, key),
          .flags = fmt::format("--{}-{}", role.name, flag),
          .member = member(role.role, part),
          .metavar = "KEY=VALUE",
          .help = std::move(help) + "; may be repeated",
          .group = k_roles_group};
}

void add_role(std::vector<JobField>& fields, const RoleFlags& role) {
  if (role.image) {
    fields.push_back(text_field(role, "Image", "image", &RoleOptions::image, "IMAGE",
                                fmt::format("Container image of {}", role.what)));
  }
  if (role.resources) {
    fields.push_back(text_field(role, "Cpu", "cpu", &RoleOptions::cpu, "N",
                                fmt::format("CPUs of {}", role.what)));
    fields.push_back(text_field(role, "CpuLimit", "cpu-limit", &RoleOptions::cpu_limit, "N",
                                fmt::format("CPUs that {} may use at most", role.what)));
    fields.push_back(text_field(role, "Memory", "memory", &RoleOptions::memory, "SIZE",
                                fmt::format("Memory of {}", role.what)));
    fields.push_back(text_field(role, "MemoryLimit", "memory-limit", &RoleOptions::memory_limit,
                                "SIZE", fmt::format("Memory that {} may use at most", role.what)));
  }
  if (role.port) {
    fields.push_back(
        {.key = fmt::format("{}Port", role.name),
         .flags = fmt::format("--{}-port", role.name),
         .member = member(role.role, &RoleOptions::port),
         .metavar = "PORT",
         .help = fmt::format("Port of {} in TF_CONFIG (default: a free one)", role.what),
         .group = k_roles_group,
         .minimum = 0,
         .maximum = k_last_port});
  }
  if (role.selector) {
    fields.push_back(list_field(role, "Selectors", "selector", &RoleOptions::selectors,
                                fmt::format("Label that the node of {} must have", role.what)));
  }
  if (role.annotation) {
    fields.push_back(list_field(role, "Annotations", "annotation", &RoleOptions::annotations,
                                fmt::format("Annotation of {}", role.what)));
  }
}

} // namespace

std::vector<JobField> role_fields() {
  std::vector<JobField> fields = {
      {.key = "ps",
       .flags = "--ps",
       .member = member(&JobSpec::ps),
       .metavar = "N",
       .help = "Number of parameter servers besides the workers (default: 0)",
       .group = k_roles_group,
       .minimum = 0,
       .maximum = k_max_workers},
      {.key = "psGpus",
       .flags = "--ps-gpus",
       .member = member(&JobSpec::ps_gpus),
       .metavar = "N",
       .help = "GPUs per parameter server (default: 0)",
       .group = k_roles_group,
       .minimum = 0,
       .maximum = k_most_gpus},
      {.key = "chief",
       .flags = "--chief",
       .member = member(&JobSpec::chief),
       .metavar = "",
       .help = "Add a chief to the workers: TensorFlow's rank 0",
       .group = k_roles_group},
      {.key = "evaluator",
       .flags = "--evaluator",
       .member = member(&JobSpec::evaluator),
       .metavar = "",
       .help = "Add an evaluator, which scores checkpoints and is not a rank",
       .group = k_roles_group},
      {.key = "nprocPerNode",
       .flags = "--nproc-per-node",
       .member = member(&JobSpec::nproc_per_node),
       .metavar = "N",
       .help = "pytorchjob: processes that torchrun starts in each worker: a number, auto, "
               "gpu or cpu",
       .group = k_roles_group},
      {.key = "roleSequence",
       .flags = "--role-sequence",
       .member = member(&JobSpec::role_sequence),
       .metavar = "ROLES",
       .help = "Order in which roles start: Worker,PS,Chief,Evaluator",
       .group = k_roles_group},
      {.key = "successPolicy",
       .flags = "--success-policy",
       .member = member(&JobSpec::success_policy),
       .metavar = "POLICY",
       .help = "Which instances must succeed: AllWorkers, or ChiefWorker for the chief or "
               "worker 0 (default: ChiefWorker for a tfjob, as with Arena, and a rayjob; "
               "else AllWorkers)",
       .group = k_roles_group,
       .choices = {"AllWorkers", "ChiefWorker"}},
  };
  const std::vector<JobField> tasks = {
      {.key = "taskImages",
       .flags = "--task-images",
       .member = member(&JobSpec::task_images),
       .metavar = "IMAGE",
       .help =
           "volcanojob: one task for each of these images, separated by commas; may be repeated "
           "(default: --image, or Arena's ubuntu,nginx,busybox)",
       .group = k_roles_group},
      {.key = "taskReplicas",
       .flags = "--task-replicas",
       .member = member(&JobSpec::task_replicas),
       .metavar = "N",
       .help = "volcanojob: instances of each task (default: 1)",
       .group = k_roles_group,
       .minimum = 1,
       .maximum = k_max_workers},
      {.key = "taskName",
       .flags = "--task-name",
       .member = member(&JobSpec::task_name),
       .metavar = "NAME",
       .help = "volcanojob: its tasks are called NAME-0, NAME-1 ... (default: task)",
       .group = k_roles_group},
      {.key = "minAvailable",
       .flags = "--min-available",
       .member = member(&JobSpec::min_available),
       .metavar = "N",
       .help = "volcanojob: start once there is room for this many instances; --gang waits for all "
               "(default: 1)",
       .group = k_roles_group,
       .minimum = 1,
       .maximum = k_max_workers},
  };
  fields.insert(fields.end(), tasks.begin(), tasks.end());
  add_role(fields,
           {.name = "chief", .what = "the chief", .role = &JobSpec::chief_role, .port = true});
  add_role(fields, {.name = "ps",
                    .what = "each parameter server",
                    .role = &JobSpec::ps_role,
                    .image = true,
                    .port = true});
  add_role(fields, {.name = "worker",
                    .what = "each worker",
                    .role = &JobSpec::worker_role,
                    .image = true,
                    .port = true,
                    .annotation = true});
  add_role(fields,
           {.name = "evaluator", .what = "the evaluator", .role = &JobSpec::evaluator_role});
  add_role(fields, {.name = "launcher",
                    .what = "the launcher",
                    .role = &JobSpec::launcher_role,
                    .resources = false,
                    .annotation = true});
  return fields;
}

} // namespace dtrain
