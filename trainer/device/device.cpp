#include "trainer/device/device.h"

#include <cstdlib>
#include <filesystem>
#include <string>

#include <fmt/format.h>

#include "trainer/device/cpu/cpu_device.h"
#include "trainer/device/cuda/cuda_device.h"
#include "trainer/errors.h"

namespace trainer {
namespace {

constexpr const char* k_gpu = "gpu:";

/// Of a rank: LOCAL_RANK indexes CUDA_VISIBLE_DEVICES (dtrain-environment(7)). Other launchers show
/// each rank its own alone, and count on.
int gpu_of(int local_rank) {
  const char* shown = std::getenv("CUDA_VISIBLE_DEVICES");
  const bool is_only_one =
      shown != nullptr && *shown != '\0' && std::string(shown).find(',') == std::string::npos;
  return is_only_one ? 0 : local_rank;
}

} // namespace

std::unique_ptr<Device> make_device(const std::string& choice, int local_rank,
                                    const std::string& no_gpu) {
  if (choice.starts_with(k_gpu)) {
    return make_cuda_device(std::stoi(choice.substr(std::string(k_gpu).size())),
                            "--devices=" + choice);
  }
  if (choice == "cuda" || choice == "gpu") {
    return make_cuda_device(gpu_of(local_rank), "--device=" + choice);
  }
  std::string why;
  if (choice == "auto" && std::filesystem::exists("/dev/nvidiactl")) {
    if (!no_gpu.empty()) {
      return std::make_unique<CpuDevice>(best_kernels(), fmt::format(" (no GPU: {})", no_gpu));
    }
    try {
      return make_cuda_device(gpu_of(local_rank), "not a GPU");
    } catch (const UsageError& error) {
      why = fmt::format(" ({})", error.what());
    }
  }
  return std::make_unique<CpuDevice>(best_kernels(), why);
}

} // namespace trainer
