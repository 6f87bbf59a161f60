// A GPU as a device: what the plug-in libdtrain_cuda.so gives, which is linked with CUDA's runtime.
// The trainer loads it when it is wanted, and so starts where there is no driver. Tests compile the
// plug-in with a runtime of their own, which has no GPU (tests/cuda_on_cpu).
//
// Each has a libstdc++ and an unwinder in itself, of the same compiler (DTRAIN_CUDA_BUILD). The
// plug-in lets nothing out that it throws, and catches nothing that it has not: it has the trainer
// throw (CudaHost), and that passes through its functions. Memory is malloc()'s in both.
#pragma once

#include <array>
#include <memory>
#include <string>

#include "trainer/device/cuda/nccl.h"
#include "trainer/device/device.h"

namespace trainer {

/// A variable of CUDA's own: 1 has every kernel waited for.
inline constexpr const char* k_cuda_launch_blocking = "CUDA_LAUNCH_BLOCKING";

class CudaDevice : public Device {
 public:
  using Uuid = std::array<unsigned char, 16>;

  CudaDevice* cuda() final { return this; }
  virtual int index() const = 0;              ///< Of those that CUDA shows this process.
  virtual Uuid uuid() const = 0;              ///< No other GPU has it.
  virtual std::string pci_bus_id() const = 0; ///< "0000:1B:00.0"; empty: not known.
  /// Null where there is none, and `why`.
  virtual const DtrainNccl* nccl(std::string& why) const = 0;
};

/// What the plug-in has the trainer throw.
struct CudaHost {
  void (*error)(const char* what);
  void (*usage_error)(const char* what);
};

/// Of plug-in and trainer, which share classes: the same, or they do not fit.
#define DTRAIN_CUDA_BUILD DTRAIN_VERSION ", plug-in 11, C++ " __VERSION__

/// The one function that the plug-in exports: GPU number `index`. Null: `build` is not its own, and
/// nothing else has been looked at. A usage error, beginning with `flag`, where there is no such
/// GPU, or its driver is missing or too old.
using MakeCudaDevice = CudaDevice*(const char* build, const CudaHost* host, int index,
                                   const char* flag);
#define DTRAIN_CUDA_SYMBOL "dtrain_cuda_device"
extern "C" MakeCudaDevice dtrain_cuda_device;

/// By the plug-in beside this program, or, in tests, by `make`. Throws UsageError beginning with
/// `flag` where there is no plug-in, or it is of another build, or as above.
std::unique_ptr<CudaDevice> make_cuda_device(int index, const std::string& flag,
                                             MakeCudaDevice* make = nullptr);

} // namespace trainer
