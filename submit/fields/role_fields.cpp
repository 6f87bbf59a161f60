#include "submit/fields/job_field_groups.h"
#include "submit/job_roles.h"

#include <algorithm>
#include <array>
#include <cstddef>

namespace dtrain {
namespace {

constexpr const char* k_roles_group = "Roles";
constexpr int k_most_gpus = 64;
constexpr int k_last_port = 65535;

/// A literal as a template's argument.
template <std::size_t length>
struct Literal {
  // NOLINTNEXTLINE(google-explicit-constructor, *-avoid-c-arrays): Joined<"--", "ps"> says it.
  consteval Literal(const char (&literal)[length]) {
    std::copy_n(static_cast<const char*>(literal), length, text.begin());
  }
  std::array<char, length> text{};
};

/// One after the other, put together by the compiler.
template <Literal... parts>
struct Joined {
  static constexpr auto text = [] {
    std::array<char, (0 + ... + (parts.text.size() - 1))> all{};
    auto end = all.begin();
    ((end = std::copy_n(parts.text.begin(), parts.text.size() - 1, end)), ...);
    return all;
  }();
};
template <Literal... parts>
constexpr std::string_view joined(Joined<parts...>::text.data(), Joined<parts...>::text.size());

/// Flags of one role: `name` "ps" of --ps-cpu, `what` "each parameter server".
template <Literal name, Literal what, RoleOptions JobSpec::*role>
struct RoleFlags {
  template <Literal key, Literal flag, Literal before, Literal after = "">
  static constexpr JobField field(auto part, std::string_view metavar) {
    return {.key = joined<name, key>,
            .flags = joined<"--", name, "-", flag>,
            .member = member(role, part),
            .metavar = metavar,
            .help = joined<before, what, after>,
            .group = k_roles_group};
  }
  static constexpr JobField port() {
    JobField port = field<"Port", "port", "Port of ", " in TF_CONFIG (default: a free one)">(
        &RoleOptions::port, "PORT");
    port.minimum = 0;
    port.maximum = k_last_port;
    return port;
  }
  static constexpr JobField image =
      field<"Image", "image", "Container image of ">(&RoleOptions::image, "IMAGE");
  static constexpr JobField cpu = field<"Cpu", "cpu", "CPUs of ">(&RoleOptions::cpu, "N");
  static constexpr JobField cpu_limit =
      field<"CpuLimit", "cpu-limit", "CPUs that ", " may use at most">(&RoleOptions::cpu_limit,
                                                                       "N");
  static constexpr JobField memory =
      field<"Memory", "memory", "Memory of ">(&RoleOptions::memory, "SIZE");
  static constexpr JobField memory_limit =
      field<"MemoryLimit", "memory-limit", "Memory that ", " may use at most">(
          &RoleOptions::memory_limit, "SIZE");
  static constexpr JobField selector =
      field<"Selectors", "selector", "Label that the node of ", " must have; may be repeated">(
          &RoleOptions::selectors, "KEY=VALUE");
  static constexpr JobField annotation =
      field<"Annotations", "annotation", "Annotation of ", "; may be repeated">(
          &RoleOptions::annotations, "KEY=VALUE");
};

using Chief = RoleFlags<"chief", "the chief", &JobSpec::chief_role>;
using Ps = RoleFlags<"ps", "each parameter server", &JobSpec::ps_role>;
using Worker = RoleFlags<"worker", "each worker", &JobSpec::worker_role>;
using Evaluator = RoleFlags<"evaluator", "the evaluator", &JobSpec::evaluator_role>;
using Launcher = RoleFlags<"launcher", "the launcher", &JobSpec::launcher_role>;

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
    {.key = "minAvailable",
     .flags = "--min-available",
     .member = member(&JobSpec::min_available),
     .metavar = "N",
     .help = "volcanojob: start once there is room for this many instances; --gang waits for all "
             "(default: 1)",
     .group = k_roles_group,
     .minimum = 1,
     .maximum = k_max_workers},
    Chief::cpu,
    Chief::cpu_limit,
    Chief::memory,
    Chief::memory_limit,
    Chief::port(),
    Chief::selector,
    Ps::image,
    Ps::cpu,
    Ps::cpu_limit,
    Ps::memory,
    Ps::memory_limit,
    Ps::port(),
    Ps::selector,
    Worker::image,
    Worker::cpu,
    Worker::cpu_limit,
    Worker::memory,
    Worker::memory_limit,
    Worker::port(),
    Worker::selector,
    Worker::annotation,
    Evaluator::cpu,
    Evaluator::cpu_limit,
    Evaluator::memory,
    Evaluator::memory_limit,
    Evaluator::selector,
    Launcher::selector,
    Launcher::annotation,
};

} // namespace

std::span<const JobField> role_fields() { return k_role_fields; }

} // namespace dtrain
