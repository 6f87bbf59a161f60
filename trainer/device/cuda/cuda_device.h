// A GPU as a device, over the table of a plug-in.
#pragma once

#include <memory>
#include <string>

#include "trainer/device/cuda/plugin.h"
#include "trainer/device/device.h"

namespace trainer {

class CudaDevice final : public Device {
 public:
  /// Number `index` of those that CUDA shows this process. Throws UsageError where there is none,
  /// or its driver is missing or too old, saying what was asked with `flag`: "--device=cuda".
  CudaDevice(const DtrainCuda& table, int index, const std::string& flag);
  ~CudaDevice() override;
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  std::string describe() const override;
  Buffer allocate(std::size_t count, DType dtype) override;
  Buffer allocate_pinned(std::size_t count, DType dtype) override;
  Stream& stream() override;
  std::unique_ptr<Stream> make_stream() override;
  const Kernels& kernels() const override;

 private:
  class CudaStream;
  class CudaEvent;
  friend struct CudaKernels;

  const DtrainCuda& table_;
  int index_;
  CudaGpu about_{};
  std::unique_ptr<CudaStream> stream_;
};

/// The plug-in beside this program, loaded once. Throws UsageError beginning with `flag` where
/// there is none, or it is of another version.
const DtrainCuda& cuda_plugin(const std::string& flag);

} // namespace trainer
