// What a rank sees of the GPUs that its job has on a machine. The contract, on every engine:
//
//   LOCAL_RANK indexes CUDA_VISIBLE_DEVICES in every rank, and no two ranks of a machine reach the
//   same GPU by it.
//
// Programs keep it in two ways, so there are two views. One that takes the GPU of its LOCAL_RANK
// (PyTorch under torchrun) sees all that the job has there, and NCCL finds the ways between them.
// One that takes all that it sees (TensorFlow, Ray, a worker with several GPUs) must see its own
// alone; its LOCAL_RANK is then 0 of 1, as in a Pod.
#pragma once

#include "submit/job_spec.h"

#include <string>
#include <string_view>
#include <vector>

namespace dtrain {

enum class GpuView {
  automatic, ///< node, unless the devices are parts of GPUs (MIG): of those CUDA shows but one.
  node,      ///< All of the job's on the machine, the GPU of a LOCAL_RANK at that place.
  rank,      ///< Its own alone.
};

/// Of a resolved job: as --gpus-visible says, else as the job is.
GpuView gpu_view(const JobSpec& job);

/// Throws UsageError where --gpus-visible asks for what LOCAL_RANK cannot index.
void check_gpu_view(const JobSpec& job);

/// As plans and flags write them: "auto", "node", "rank".
std::string_view gpu_view_name(GpuView view);

/// Automatic, where `name` is neither "node" nor "rank".
GpuView parse_gpu_view(std::string_view name);

/// The devices, by their names in CUDA_VISIBLE_DEVICES, are parts of GPUs.
bool are_parts(const std::vector<std::string>& devices);

} // namespace dtrain
