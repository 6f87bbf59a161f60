#include "submit/gpu_view.h"

#include "submit/errors.h"
#include "submit/job_roles.h"

#include <fmt/format.h>

#include <algorithm>

namespace dtrain {
namespace {

constexpr std::string_view k_node_word = "node";
constexpr std::string_view k_rank_word = "rank";

/// Why LOCAL_RANK could not pick a rank's GPU among all that the job has there; empty: it can.
std::string why_alone(const JobSpec& job) {
  const JobType& type = *find_job_type(job.type);
  if (job.gpus > 1) {
    return fmt::format("LOCAL_RANK picks one GPU, and a worker has {}", job.gpus);
  }
  if (job.min_workers > 0 || job.max_workers > 0) {
    return "workers of an elastic job come and go, and the GPUs of a running worker cannot change";
  }
  if (!job.nproc_per_node.empty()) {
    return "torchrun numbers the processes of each worker from 0";
  }
  return type.has_ray ? "each worker gives Ray all GPUs that it sees" : "";
}

/// TensorFlow takes all GPUs that it sees: its type, or a job with a role that only it has.
bool is_tensorflow(const JobSpec& job) {
  return job.type == "tfjob" || job.chief || job.ps > 0 || job.evaluator;
}

} // namespace

GpuView gpu_view(const JobSpec& job) {
  if (!job.gpus_visible.empty()) {
    return parse_gpu_view(job.gpus_visible);
  }
  return !why_alone(job).empty() || is_tensorflow(job) ? GpuView::rank : GpuView::automatic;
}

void check_gpu_view(const JobSpec& job) {
  if (job.gpus_visible.empty()) {
    return;
  }
  if (job.gpus == 0) {
    throw UsageError(fmt::format("--gpus-visible={}: add --gpus=N, the number of GPUs per worker",
                                 job.gpus_visible));
  }
  if (find_job_type(job.type)->has_launcher) {
    throw UsageError(fmt::format("--gpus-visible={}: the launcher of a {} sees all GPUs of the job "
                                 "and assigns them itself; drop it",
                                 job.gpus_visible, job.type));
  }
  if (const auto why = why_alone(job); job.gpus_visible == k_node_word && !why.empty()) {
    throw UsageError(fmt::format("--gpus-visible=node: {}; drop it", why));
  }
}

std::string_view gpu_view_name(GpuView view) {
  return view == GpuView::node ? k_node_word : view == GpuView::rank ? k_rank_word : "auto";
}

GpuView parse_gpu_view(std::string_view name) {
  return name == k_node_word   ? GpuView::node
         : name == k_rank_word ? GpuView::rank
                               : GpuView::automatic;
}

bool are_parts(const std::vector<std::string>& devices) {
  return std::any_of(devices.begin(), devices.end(),
                     [](const std::string& device) { return device.starts_with("MIG-"); });
}

} // namespace dtrain
