// What NVIDIA's driver says of the GPUs of a machine that a job would fail by.
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
  std::string failure;  ///< Of nvidia-smi: nothing is known of GPUs that are not among `gpus`.
  bool is_known = true; ///< There is an nvidia-smi.

  /// Of a device as CUDA_VISIBLE_DEVICES names it; empty: none that is known.
  std::string fault_of(std::string_view device) const;
};

/// What a machine is asked, for sh: read_gpu_health() reads what it prints.
extern const char* const k_gpu_health_script;

/// A field that a GPU does not have is no fault.
GpuHealth read_gpu_health(std::string_view text);

/// Asks this machine, for some seconds at most.
GpuHealth ask_gpu_health();

/// Of a machine whose nvidia-smi does not answer in that time.
std::string silent_nvidia_smi(std::int64_t seconds);

} // namespace dtrain
