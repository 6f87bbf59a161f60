// Faults of a machine's GPUs, reported by NVIDIA's driver, that would make a job fail.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dtrain {

struct GpuReport {
  std::string index;              ///< The driver's.
  std::string name;               ///< "NVIDIA H100"
  std::string uuid;               ///< "GPU-…"
  std::vector<std::string> parts; ///< "MIG-…"
  std::string fault;              ///< "GPU 2 (NVIDIA H100): …: what to do"; empty: none.
};

struct GpuHealth {
  std::string driver; ///< "580.159.04"; empty: not known.
  std::vector<GpuReport> gpus;
  std::string failure;  ///< Of nvidia-smi: then nothing is known about GPUs that are not in `gpus`.
  bool is_known = true; ///< Whether nvidia-smi is there.

  /// The fault of a device as CUDA_VISIBLE_DEVICES names it; empty: none known.
  std::string fault_of(std::string_view device) const;
};

/// The sh script that queries a machine; read_gpu_health() reads its output.
extern const char* const k_gpu_health_script;

/// A field that a GPU does not have is no fault.
GpuHealth read_gpu_health(std::string_view text);

/// Asks this machine, for some seconds at most.
GpuHealth ask_gpu_health();

/// The message for a machine whose nvidia-smi does not answer in that time.
std::string silent_nvidia_smi(std::int64_t seconds);

} // namespace dtrain
