// A GPU as a Device, from the plug-in libdtrain_cuda.so, which is linked with CUDA's runtime. The
// trainer loads it on demand, and so starts without a driver. Tests compile the plug-in with a
// runtime of their own that needs no GPU (tests/cuda_on_cpu).
//
// Trainer and plug-in each contain a libstdc++ and an unwinder of the same compiler
// (DTRAIN_CUDA_BUILD). No exception thrown in the plug-in leaves it: it asks the trainer to throw
// (CudaHost), and does not catch those exceptions. Both use the same malloc().
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "trainer/device/cuda/nccl.h"
#include "trainer/device/device.h"

namespace trainer {

/// CUDA's environment variable: 1 makes every launch synchronous.
inline constexpr const char* k_cuda_launch_blocking = "CUDA_LAUNCH_BLOCKING";

class CudaDevice : public Device {
 public:
  using Uuid = std::array<unsigned char, 16>;

  CudaDevice* cuda() final { return this; }
  virtual int index() const = 0;              ///< Among the GPUs that CUDA shows this process.
  virtual Uuid uuid() const = 0;              ///< Unique among all GPUs.
  virtual std::string pci_bus_id() const = 0; ///< "0000:1B:00.0"; empty if not known.
  virtual std::string model() const = 0;      ///< "NVIDIA H100 80GB HBM3"
  /// Lets its streams copy from and to the memory of another GPU of this process. False: the
  /// machine has no way from one to the other.
  virtual bool reach(const CudaDevice& other) = 0;
  /// The driver's rank of the link to a GPU that it reaches: links of one rank perform alike.
  virtual int link_rank(const CudaDevice& other) const = 0;
  /// Host memory that is there already, as allocate_pinned()'s until the Buffer goes, which goes
  /// first. Empty if CUDA pins no such memory; `why` then says why.
  virtual Buffer pin(std::span<std::byte> memory, std::string& why) = 0;
  /// Null if there is none; `why` then says why.
  virtual const DtrainNccl* nccl(std::string& why) const = 0;
  /// `planned`: how many bytes the run takes of its memory, which is asked once there is too little
  /// and becomes part of that error; null: not known.
  virtual void set_planned(std::function<std::size_t()> planned) = 0;
  /// Most bytes of its memory that products take besides their operands, which have up to so many
  /// values each: a workspace, and copies of operands in FP8 or fp16.
  virtual std::size_t memory_for_products(std::size_t values) const = 0;
};

/// Functions of the trainer by which the plug-in reports errors: they throw.
struct CudaHost {
  void (*error)(const char* what);
  void (*usage_error)(const char* what);
};

/// Identifies a build. Trainer and plug-in share classes, so both must be of the same build.
#define DTRAIN_CUDA_BUILD DTRAIN_VERSION ", plug-in 19, C++ " __VERSION__

/// The one function that the plug-in exports: opens GPU number `index`. Returns null, before all
/// else, if `build` differs from the plug-in's. Reports a usage error that begins with `flag` if
/// there is no such GPU, or the driver is missing or too old.
using MakeCudaDevice = CudaDevice*(const char* build, const CudaHost* host, int index,
                                   const char* flag);
#define DTRAIN_CUDA_SYMBOL "dtrain_cuda_device"
extern "C" MakeCudaDevice dtrain_cuda_device;

/// Opens a GPU with the plug-in beside this program, or, in tests, with `make`. Throws UsageError
/// that begins with `flag` if there is no plug-in, or it is of another build, or as above.
std::unique_ptr<CudaDevice> make_cuda_device(int index, const std::string& flag,
                                             MakeCudaDevice* make = nullptr);

} // namespace trainer
