#include "trainer/device/device.h"

#include <fmt/format.h>

#include <filesystem>

#include "trainer/errors.h"

namespace trainer {

Device select_device(const std::string& choice) {
  const bool driver = std::filesystem::exists("/dev/nvidiactl");
  if (choice == "cuda") {
    throw UsageError(fmt::format("--device=cuda: {}; use --device=auto or cpu",
                                 driver ? "this build of dtrain-trainer has no CUDA kernels"
                                        : "no NVIDIA driver (/dev/nvidiactl) on this machine, and "
                                          "this build has no CUDA kernels"));
  }
  Device device;
  device.kernels = &best_kernels();
  device.description = fmt::format(
      "cpu, {} kernels, 1 thread{}", device.kernels->name,
      choice == "auto" && driver ? " (there is a GPU, but this build has no CUDA kernels)" : "");
  return device;
}

} // namespace trainer
