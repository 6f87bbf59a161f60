#include <filesystem>

#include <dlfcn.h>
#include <fmt/format.h>

#include "submit/options/this_program.h"
#include "trainer/device/cuda/cuda_device.h"
#include "trainer/errors.h"
#include "trainer/version.h"

namespace trainer {
namespace {

constexpr const char* k_cuda_plugin = "libdtrain_cuda.so";

} // namespace

const DtrainCuda& cuda_plugin(const std::string& flag) {
  const auto path = dtrain::this_program().parent_path() / k_cuda_plugin;
  if (std::error_code error; !std::filesystem::exists(path, error)) {
    throw UsageError(
        fmt::format("{}: no CUDA plug-in {}; build it with cmake --workflow --preset cuda, or use "
                    "--device=cpu",
                    flag, path.string()));
  }
  // Never unloaded: what CUDA keeps for a thread ends with the program.
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  void* symbol = library == nullptr ? nullptr : dlsym(library, DTRAIN_CUDA_SYMBOL);
  if (symbol == nullptr) {
    const char* why = dlerror();
    throw UsageError(fmt::format("{}: {}; use --device=cpu", flag,
                                 why == nullptr ? path.string() + " cannot be loaded" : why));
  }
  const DtrainCuda* table = reinterpret_cast<const DtrainCuda* (*)()>(symbol)();
  if (table == nullptr || table->version != k_dtrain_cuda_version ||
      table->build != trainer_version()) {
    throw UsageError(fmt::format("{}: {} is a plug-in of another version of dtrain-trainer than "
                                 "{}; reinstall both",
                                 flag, path.string(), trainer_version()));
  }
  return *table;
}

} // namespace trainer
