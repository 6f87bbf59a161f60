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
constexpr CudaHost k_cuda_host = {[](const char* what) { throw Error(what); },
                                  [](const char* what) { throw UsageError(what); }};

/// Null if the library has no such function.
MakeCudaDevice* load_plugin(const std::filesystem::path& path, const std::string& flag) {
  if (std::error_code error; !std::filesystem::exists(path, error)) {
    throw UsageError(
        fmt::format("{}: no CUDA plug-in {}; build it with cmake --workflow --preset cuda, or use "
                    "--device=cpu",
                    flag, path.string()));
  }
  // Never unloaded: CUDA's thread-local state lives until the program ends.
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) {
    const char* why = dlerror();
    throw UsageError(fmt::format("{}: {}; use --device=cpu", flag,
                                 why == nullptr ? path.string() + " cannot be loaded" : why));
  }
  return reinterpret_cast<MakeCudaDevice*>(dlsym(library, DTRAIN_CUDA_SYMBOL));
}

} // namespace

std::unique_ptr<CudaDevice> make_cuda_device(int index, const std::string& flag,
                                             MakeCudaDevice* make) {
  const auto path = dtrain::this_program().parent_path() / k_cuda_plugin;
  make = make == nullptr ? load_plugin(path, flag) : make;
  std::unique_ptr<CudaDevice> device(
      make == nullptr ? nullptr : make(DTRAIN_CUDA_BUILD, &k_cuda_host, index, flag.c_str()));
  if (device == nullptr) {
    throw UsageError(fmt::format("{}: {} is a plug-in of another version of dtrain-trainer than "
                                 "{}; reinstall both",
                                 flag, path.string(), trainer_version()));
  }
  return device;
}

} // namespace trainer
