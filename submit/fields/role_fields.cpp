#include "submit/fields/job_field_groups.h"
#include "submit/job_roles.h"

namespace dtrain {
namespace {

constexpr const char* k_roles_group = "Roles";
constexpr int k_most_gpus = 64;

constexpr JobField k_role_fields[] = {
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
    {.key = "taskImages",
     .flags = "--task-images",
     .member = member(&JobSpec::task_images),
     .metavar = "IMAGE",
     .help = "volcanojob: one task for each of these images, separated by commas; may be repeated "
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
    {.key = "workerCpu",
     .flags = "--worker-cpu",
     .member = member(&JobSpec::worker_cpu),
     .metavar = "N",
     .help = "CPUs of each worker",
     .group = k_roles_group,
     .form = Form::quantity},
    {.key = "workerMemory",
     .flags = "--worker-memory",
     .member = member(&JobSpec::worker_memory),
     .metavar = "SIZE",
     .help = "Memory of each worker",
     .group = k_roles_group,
     .form = Form::quantity},
};

} // namespace

std::span<const JobField> role_fields() { return k_role_fields; }

} // namespace dtrain
