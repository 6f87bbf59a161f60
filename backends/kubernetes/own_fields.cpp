#include "backends/kubernetes/own_fields.h"

#include <deque>
#include <string_view>

namespace dtrain::kubernetes {
namespace {

constexpr int k_last_port = 65535;

/// What each of several roles may ask for by itself.
struct Part {
  std::string_view key;  ///< "CpuLimit", of "psCpuLimit".
  std::string_view flag; ///< "cpu-limit", of --ps-cpu-limit.
  std::string_view metavar;
  std::string_view before; ///< In the help, the role's description.
  std::string_view after = "";
  Form form = Form::any;
  bool is_list = false;
};

constexpr Part k_image = {"Image", "image", "IMAGE", "Container image of "};
constexpr Part k_cpu = {"Cpu", "cpu", "N", "CPUs of ", "", Form::quantity};
constexpr Part k_cpu_limit = {"CpuLimit",   "cpu-limit",        "N",
                              "CPUs that ", " may use at most", Form::quantity};
constexpr Part k_memory = {"Memory", "memory", "SIZE", "Memory of ", "", Form::quantity};
constexpr Part k_memory_limit = {"MemoryLimit",  "memory-limit",     "SIZE",
                                 "Memory that ", " may use at most", Form::quantity};
constexpr Part k_selector = {
    "Selectors", "selector", "KEY=VALUE", "Label that the node of ", " must have; may be repeated",
    Form::pair,  true};
constexpr Part k_annotation = {"Annotations",       "annotation", "KEY=VALUE", "Annotation of ",
                               "; may be repeated", Form::pair,   true};

struct RoleParts {
  std::string_view role;
  std::string_view what; ///< In helps.
  bool has_port;
  std::vector<Part> parts;
};

/// Besides --worker-cpu and --worker-memory, which are not Kubernetes' alone.
const std::vector<RoleParts>& role_parts() {
  static const std::vector<RoleParts> all = {
      {"chief", "the chief", true, {k_cpu, k_cpu_limit, k_memory, k_memory_limit, k_selector}},
      {"ps",
       "each parameter server",
       true,
       {k_image, k_cpu, k_cpu_limit, k_memory, k_memory_limit, k_selector}},
      {"worker",
       "each worker",
       true,
       {k_image, k_cpu_limit, k_memory_limit, k_selector, k_annotation}},
      {"evaluator",
       "the evaluator",
       false,
       {k_cpu, k_cpu_limit, k_memory, k_memory_limit, k_selector}},
      {"launcher", "the launcher", false, {k_selector, k_annotation}},
  };
  return all;
}

/// A text to which fields point.
template <typename... Parts>
std::string_view kept(const Parts&... parts) {
  static std::deque<std::string> all; // Grows without moving what it has.
  return all.emplace_back((std::string() + ... + std::string(parts)));
}

void add_role(const RoleParts& role, std::vector<JobField>& fields) {
  const auto add = [&](const Part& part, const auto& member_of) {
    const std::string_view key = kept(role.role, part.key);
    fields.push_back({.key = key,
                      .flags = kept("--", role.role, "-", part.flag),
                      .member = member_of(key),
                      .metavar = part.metavar,
                      .help = kept(part.before, role.what, part.after),
                      .form = part.form});
  };
  for (const Part& part : role.parts) {
    add(part, [&](std::string_view key) {
      return part.is_list ? JobMember(own::Texts{.key = key}) : JobMember(own::Text{.key = key});
    });
  }
  if (role.has_port) {
    add({"Port", "port", "PORT", "Port of ", " in TF_CONFIG (default: a free one)"},
        [](std::string_view key) { return JobMember(Member<int>{.key = key}); });
    fields.back().minimum = 0;
    fields.back().maximum = k_last_port;
  }
}

} // namespace

std::vector<JobField> own_fields() {
  std::vector<JobField> fields = {
      {.key = own::selectors.key,
       .flags = "--selector",
       .member = own::selectors,
       .metavar = "KEY=VALUE",
       .help = "Label the node must have; may be repeated",
       .form = Form::pair},
      {.key = own::annotations.key,
       .flags = "-a,--annotation",
       .member = own::annotations,
       .metavar = "KEY=VALUE",
       .help = "Annotation of the job's objects; may be repeated",
       .form = Form::pair},
      {.key = own::image_pull_policy.key,
       .flags = "--image-pull-policy",
       .member = own::image_pull_policy,
       .metavar = "POLICY",
       .help = "When to pull the image: Always, IfNotPresent, Never (default: the "
               "cluster's)"},
      {.key = own::image_pull_secrets.key,
       .flags = "--image-pull-secret",
       .member = own::image_pull_secrets,
       .metavar = "NAME",
       .help = "Secret to pull the image with; may be repeated",
       .aliases = {"--image-pull-secrets"}},
      {.key = own::share_memory.key,
       .flags = "--share-memory",
       .member = own::share_memory,
       .metavar = "SIZE",
       .help = "Size of /dev/shm (default: 2Gi)",
       .form = Form::quantity},
      {.key = own::tolerations.key,
       .flags = "--toleration",
       .member = own::tolerations,
       .metavar = "KEY[=VALUE][:EFFECT]|all",
       .help = "Taint the node may have; may be repeated"},
      {.key = own::run_as_user.key,
       .flags = "--run-as-user",
       .member = own::run_as_user,
       .metavar = "UID",
       .help =
           "User ID of the ranks (default: 1000); 0, root, is refused where Pods are restricted",
       .minimum = 0,
       .maximum = INT32_MAX},
      {.key = own::scheduler.key,
       .flags = "--scheduler",
       .member = own::scheduler,
       .metavar = "NAME",
       .help = "Scheduler that places the job (default: the cluster's)",
       .aliases = {"--scheduler-name"}},
      {.key = own::api.key,
       .flags = "--api",
       .member = own::api,
       .metavar = "API",
       .help =
           "What the job is made of: its own Jobs (job, the default), a JobSet, which restarts all "
           "ranks after a failure (jobset), or Kubeflow Trainer's TrainJob, which makes such a "
           "JobSet (trainjob)",
       .choices = {"job", "jobset", "trainjob"}},
      {.key = own::gpu_type.key,
       .flags = "--gpu-type",
       .member = own::gpu_type,
       .metavar = "MODEL",
       .help = "GPU model the nodes must have"},
      {.key = own::devices.key,
       .flags = "--device",
       .member = own::devices,
       .metavar = "RESOURCE=N",
       .help = "Other devices per worker (amd.com/gpu=1); may be repeated"},
      {.key = own::topology_spread.key,
       .flags = "--topology-spread",
       .member = own::topology_spread,
       .metavar = "KEY[:required]",
       .help = "Spread the workers evenly over the values of this node label, such as "
               "topology.kubernetes.io/zone, or over the nodes themselves (node); with ':required' "
               "a worker waits rather than "
               "make it uneven; may be repeated"},
      {.key = own::binpack.key,
       .flags = "--binpack",
       .member = own::binpack,
       .metavar = "",
       .help = "Put the workers on as few nodes as possible"},
      {.key = own::sync_image.key,
       .flags = "--sync-image",
       .member = own::sync_image,
       .metavar = "IMAGE",
       .help = "Image with git (for a folder: tar; for a bucket: dtrain), if the job's "
               "image has none"},
      {.key = own::tensorboard_image.key,
       .flags = "--tensorboard-image",
       .member = own::tensorboard_image,
       .metavar = "IMAGE",
       .help = "Image of TensorBoard (default: the job's)"},
  };
  for (const RoleParts& role : role_parts()) {
    add_role(role, fields);
  }
  return fields;
}

} // namespace dtrain::kubernetes
