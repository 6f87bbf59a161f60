// Whether NCCL carries the gradients of a job's ranks, and why not.
#pragma once

#include <string>
#include <vector>

#include "trainer/collectives/communicator.h"
#include "trainer/device/cuda/cuda_device.h"

namespace trainer {

struct NcclChoice {
  const DtrainNccl* nccl = nullptr; ///< Null: NCCL is not used.
  std::string why;                  ///< "; not NCCL: no rank computes on a GPU"
};

/// `gpus`: one a replica of this process, empty where they compute on CPUs. Collective between the
/// workers: NCCL, where every rank has a GPU to itself and all have the same NCCL. Where it is
/// asked for and cannot be, throws UsageError beginning with `asked`, on all of them; empty: it is
/// not asked for.
NcclChoice choose_nccl(Communicator& between, const std::vector<CudaDevice*>& gpus,
                       const std::string& asked);

} // namespace trainer
