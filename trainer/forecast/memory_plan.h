// dtrain-trainer --plan-memory: the bytes that a rank takes of the host's memory, or
// of its GPU's, at each of ZeRO's stages, before it runs.
//
// Of the model's state (strategy/shards.h) a rank has its own chunks to stay, and the others' for a
// while: what is there at a time follows from the order in which the model needs units and finishes
// gradients (Model::rehearse()), gathered and given back as in a step of training. Its activations
// are counted as it makes room for a batch (BufferCount). Nothing is computed, and no page of it
// all is written to.
//
// A GPU's state is in the pages of its driver (Device::allocate_paged()), and what it saves is
// copied to the host. Its activations are counted by a device that allocates nothing, and with them
// the most that products take beside (CudaDevice::memory_for_products()).
//
// Not in it: what CUDA and NCCL take for themselves; what a resumed rank 0 has loaded and not yet
// shared out, the kernel's buffers of sockets, and, where the ranks of a host reduce through shared
// memory, the others' gradients, which the system counts to each rank that has looked at them.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "trainer/data/locate.h"
#include "trainer/run/run_options.h"
#include "trainer/strategy/ranks.h"

namespace trainer {

/// In bytes, at the moment of a training step at which they are most together.
struct MemoryPlan {
  int stage = 0;
  std::size_t parameters = 0;
  std::size_t gradients = 0;
  std::size_t moments = 0; ///< The optimizer's.
  std::size_t rounded = 0; ///< What a model in 16 bits computes with.
  std::size_t activations = 0;
  std::size_t start = 0; ///< All that rank 0 has while it draws the weights.
  std::size_t save = 0;  ///< And a rank, from when it saves a checkpoint on; 0: it does not.

  std::size_t step() const { return parameters + gradients + moments + rounded + activations; }
  std::size_t most() const;
};

struct MemoryPlanOptions {
  ModelOptions model; ///< As fitted() to the data.
  OptimizerOptions optimizer = {};
  Precision precision = Precision::fp32;
  Buckets buckets = 0;
  Offload offload = {};
  int ranks = 1;
  Batch like = {};          ///< What goes forward and backward at once; its numbers alone count.
  bool accumulates = false; ///< Several of these in a step.
  bool saves = false;       ///< Checkpoints,
  bool goes_on = false;     ///< and trains on after some of them.
};

/// Of samples that a GPU keeps in its memory, beside what is planned.
std::size_t kept_bytes(const Dataset& samples, const Device& gpu);

/// Of a rank on `device`.
MemoryPlan plan_memory(const MemoryPlanOptions& options, int stage, Device& device);

/// A table for people, a line a stage, in MB. `program`: bytes that the rank takes besides, in a
/// column of that title.
std::string memory_plan_text(const std::vector<MemoryPlan>& plans, std::size_t program,
                             const char* title = "PROGRAM");

/// Has a rank's GPU, if it runs out of memory, say how much of it the run was planned to take. What
/// is given outlives the device, or the next call.
void tell_plan(int ranks, const RunOptions& run, const Dataset& samples, Device& device);

/// For so many ranks; the first one prints.
void print_memory_plan(int ranks, const RankOptions& rank, const RunOptions& run,
                       const DataOptions& data);

} // namespace trainer
