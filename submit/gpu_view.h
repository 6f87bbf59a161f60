// Which of its node's GPUs a rank sees. The contract, on every engine:
//
//   LOCAL_RANK indexes CUDA_VISIBLE_DEVICES in every rank, and no two ranks of a job reach the same
//   GPU of a machine by it.
//
// There are two kinds of programs, and so two views. A program that takes the GPU with the number
// LOCAL_RANK (PyTorch under torchrun) sees all GPUs of the job on that machine, and NCCL finds the
// paths between them. A program that takes every GPU it sees (TensorFlow, Ray, a worker with
// several GPUs) must see only its own; its LOCAL_RANK is then 0 of 1, as in a Pod.
#pragma once

#include "submit/job_spec.h"

#include <string>
#include <string_view>
#include <vector>

namespace dtrain {

enum class GpuView {
  automatic, ///< node, unless the devices are parts of GPUs (MIG): of those CUDA shows but one.
  node,      ///< All GPUs of the job on the machine, ordered by LOCAL_RANK.
  rank,      ///< Only its own GPUs.
};

/// The view of a resolved job: as --gpus-visible says, otherwise by its type.
GpuView gpu_view(const JobSpec& job);

/// Throws UsageError where --gpus-visible asks for what LOCAL_RANK cannot index.
void check_gpu_view(const JobSpec& job);

/// As plans and flags write it: "auto", "node", "rank".
std::string_view gpu_view_name(GpuView view);

/// Automatic, where `name` is neither "node" nor "rank".
GpuView parse_gpu_view(std::string_view name);

/// The devices, by their names in CUDA_VISIBLE_DEVICES, are parts of GPUs.
bool are_parts(const std::vector<std::string>& devices);

} // namespace dtrain
