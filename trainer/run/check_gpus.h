// `dtrain-trainer check-gpus`: measures this machine's GPUs, and names those that compute wrong or
// are slow.
//
// All GPUs multiply at the same time, as in a job, so that heat and the power supply count. Each
// computes C = A · B (n, n), with the same A and B on all of them, again and again for some
// seconds: bf16 on tensor cores by cuBLASLt where that is found, else float32. Every repetition is
// compared with the first one on the GPU; of the first one, some entries are compared with the
// host's, and a digest of all bits with that of the other GPUs of the model. Then every ordered
// pair of GPUs copies, one pair after the other: from memory to memory where the GPUs reach each
// other, else through the host's.
//
// A GPU takes 12 n² bytes of memory (0.8 GB for n = 8192), 16 n² without tensor cores.
#pragma once

#include <cstdint>
#include <string>

#include "submit/options/option_table.h"

namespace trainer {

struct GpuCheckOptions {
  std::string devices; ///< "gpu:0,gpu:1"; empty: all that CUDA shows.
  double seconds = 1;  ///< Of products.
  std::int64_t size = 8192;
  bool json = false;
};

dtrain::CommandTable check_gpus_command(GpuCheckOptions& options);

/// Prints what it measured and found. Throws Error, saying how many findings there are, if there is
/// one; UsageError if there is no GPU, driver or plug-in.
void check_gpus(const GpuCheckOptions& options);

} // namespace trainer
