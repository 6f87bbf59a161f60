// What NVIDIA's driver says of the GPUs of this machine that a job would fail by.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dtrain {

struct GpuHealth {
  std::string driver;              ///< "580.159.04"; empty: not known.
  std::vector<std::string> faults; ///< "GPU 2 (NVIDIA H100): …: what to do", a GPU and fault each.
};

/// Of what `nvidia-smi --query-gpu=…` printed, a line a GPU. A field that a GPU does not have is no
/// fault.
GpuHealth read_gpu_health(std::string_view csv);

/// Asks nvidia-smi, for some seconds at most. Throws EngineError where it is missing, fails, as it
/// does once a GPU has fallen off the bus, or does not answer.
GpuHealth ask_gpu_health();

} // namespace dtrain
