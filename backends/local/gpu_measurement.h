// Measures GPUs of this machine by `dtrain-trainer check-gpus`, which keeps them busy for some
// seconds: which compute wrong, or are slow beside others of their model.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace dtrain {

struct MeasuredGpus {
  /// By device, as CUDA_VISIBLE_DEVICES names it: "GPU 2 (NVIDIA H100): …: what to do".
  std::map<std::string, std::string> faults;
  std::vector<std::string> links; ///< Faults between two GPUs: "GPU 0 to GPU 1: …".
  std::string speeds;             ///< "8 GPUs, 640 to 655 TFLOP/s of bf16"
  std::string failure;            ///< Why nothing was measured; empty: it was.
};

/// Measures these devices, all at once. If the trainer, its CUDA plug-in or a driver is missing,
/// that is the failure; if the measurement does not end, that is the fault of all of them.
MeasuredGpus measure_gpus(const std::vector<std::string>& devices);

/// From the command's JSON, or what it printed in its place: why there is no measurement.
MeasuredGpus read_measured_gpus(std::string_view text);

} // namespace dtrain
