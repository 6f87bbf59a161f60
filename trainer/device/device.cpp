#include "trainer/device/device.h"

#include <filesystem>

#include <fmt/format.h>

#include "trainer/device/cpu/cpu_device.h"
#include "trainer/errors.h"

namespace trainer {

std::unique_ptr<Device> make_device(const std::string& choice) {
  const bool driver = std::filesystem::exists("/dev/nvidiactl");
  if (choice == "cuda") {
    throw UsageError(fmt::format("--device=cuda: {}; use --device=auto or cpu",
                                 driver ? "this build of dtrain-trainer has no CUDA kernels"
                                        : "no NVIDIA driver (/dev/nvidiactl) on this machine, and "
                                          "this build has no CUDA kernels"));
  }
  return std::make_unique<CpuDevice>(
      best_kernels(),
      choice == "auto" && driver ? " (there is a GPU, but this build has no CUDA kernels)" : "");
}

} // namespace trainer
