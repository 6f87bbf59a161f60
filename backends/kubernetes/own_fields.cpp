#include "backends/kubernetes/own_fields.h"

#include "backends/engine.h"

#include <fmt/format.h>

#include <deque>

namespace dtrain::kubernetes {
namespace {

/// A text to which fields point.
std::string_view kept(std::string text) {
  static std::deque<std::string> all; // A deque keeps its elements in place as it grows.
  return all.emplace_back(std::move(text));
}

/// The role's field; `part` has the end of the key and of the flag.
JobField role_field(JobField part, std::string_view role, std::string_view what) {
  part.key = kept(fmt::format("{}{}", role, part.key));
  part.flags = kept(fmt::format("--{}-{}", role, part.flags));
  part.help = kept(fmt::format(fmt::runtime(part.help), what));
  std::visit([&](auto& member) { member.key = part.key; }, part.member);
  return part;
}

/// Resources of single roles, besides --worker-cpu and --worker-memory, which other engines have,
/// too.
void add_role_fields(std::vector<JobField>& fields) {
  const JobField image =
      own_field(own::Text{.key = "Image"}, "image", "IMAGE", "Container image of {}");
  const JobField cpu = own_field(own::Text{.key = "Cpu"}, "cpu", "N", "CPUs of {}", Form::quantity);
  const JobField cpu_limit = own_field(own::Text{.key = "CpuLimit"}, "cpu-limit", "N",
                                       "CPUs that {} may use at most", Form::quantity);
  const JobField memory =
      own_field(own::Text{.key = "Memory"}, "memory", "SIZE", "Memory of {}", Form::quantity);
  const JobField memory_limit = own_field(own::Text{.key = "MemoryLimit"}, "memory-limit", "SIZE",
                                          "Memory that {} may use at most", Form::quantity);
  const JobField port = {.key = "Port",
                         .flags = "port",
                         .member = Member<int>{},
                         .metavar = "PORT",
                         .help = "Port of {} in TF_CONFIG (default: a free one)",
                         .minimum = 0,
                         .maximum = 65535};
  const JobField selector =
      own_field(own::Texts{.key = "Selectors"}, "selector", "KEY=VALUE",
                "Label that the node of {} must have; may be repeated", Form::pair);
  const JobField annotation = own_field(own::Texts{.key = "Annotations"}, "annotation", "KEY=VALUE",
                                        "Annotation of {}; may be repeated", Form::pair);
  const auto add = [&](std::string_view role, std::string_view what,
                       const std::vector<JobField>& parts) {
    for (const JobField& part : parts) {
      fields.push_back(role_field(part, role, what));
    }
  };
  add("chief", "the chief", {cpu, cpu_limit, memory, memory_limit, port, selector});
  add("ps", "each parameter server", {image, cpu, cpu_limit, memory, memory_limit, port, selector});
  add("worker", "each worker", {image, cpu_limit, memory_limit, port, selector, annotation});
  add("evaluator", "the evaluator", {cpu, cpu_limit, memory, memory_limit, selector});
  add("launcher", "the launcher", {selector, annotation});
}

} // namespace

std::vector<JobField> own_fields() {
  std::vector<JobField> fields = {
      own_field(own::selectors, "--selector", "KEY=VALUE",
                "Label the node must have; may be repeated", Form::pair),
      own_field(own::annotations, "-a,--annotation", "KEY=VALUE",
                "Annotation of the job's objects; may be repeated", Form::pair),
      own_field(own::image_pull_policy, "--image-pull-policy", "POLICY",
                "When to pull the image: Always, IfNotPresent, Never (default: the cluster's)"),
      {.key = own::image_pull_secrets.key,
       .flags = "--image-pull-secret",
       .member = own::image_pull_secrets,
       .metavar = "NAME",
       .help = "Secret to pull the image with; may be repeated",
       .aliases = {"--image-pull-secrets"}},
      own_field(own::share_memory, "--share-memory", "SIZE", "Size of /dev/shm (default: 2Gi)",
                Form::quantity),
      own_field(own::tolerations, "--toleration", "KEY[=VALUE][:EFFECT]|all",
                "Taint the node may have; may be repeated"),
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
      {.key = own::min_available.key,
       .flags = "--min-available",
       .member = own::min_available,
       .metavar = "N",
       .help = "volcanojob: start once there is room for this many instances; --gang waits for "
               "all (default: 1)",
       .minimum = 1,
       .maximum = k_max_workers},
      {.key = own::api.key,
       .flags = "--api",
       .member = own::api,
       .metavar = "API",
       .help = "API objects of the job: Jobs (job, the default), a JobSet, which restarts all "
               "ranks after a failure (jobset), or a TrainJob of Kubeflow Trainer, which makes "
               "such a JobSet (trainjob)",
       .choices = {"job", "jobset", "trainjob"}},
      own_field(own::gpu_type, "--gpu-type", "MODEL", "GPU model the nodes must have"),
      own_field(own::devices, "--device", "RESOURCE=N",
                "Other devices per worker (amd.com/gpu=1); may be repeated"),
      own_field(
          own::topology_spread, "--topology-spread", "KEY[:required]",
          "Spread the workers evenly over the values of this node label, such as "
          "topology.kubernetes.io/zone, or over the nodes themselves (node); with ':required' "
          "a worker waits rather than make it uneven; may be repeated"),
      own_field(own::binpack, "--binpack", "", "Put the workers on as few nodes as possible"),
      own_field(own::sync_image, "--sync-image", "IMAGE",
                "Image with git (for a folder: tar; for a bucket: dtrain), if the job's "
                "image has none"),
      own_field(own::tensorboard_image, "--tensorboard-image", "IMAGE",
                "Image of TensorBoard (default: the job's)"),
  };
  add_role_fields(fields);
  return fields;
}

} // namespace dtrain::kubernetes
