// A GPU as a device, over the table of a plug-in.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "trainer/device/cuda/plugin.h"
#include "trainer/device/device.h"

namespace trainer {

/// A variable of CUDA's own: 1 has every kernel waited for.
inline constexpr const char* k_cuda_launch_blocking = "CUDA_LAUNCH_BLOCKING";

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
  const Kernels& kernels() const override { return kernels_; }
  double peak_flops() const override;
  std::size_t most_allocated() const override { return most_allocated_; }

  const DtrainCuda& table() const { return table_; }
  int index() const { return index_; }
  const CudaGpu& about() const { return about_; }
  /// Of a stream that a CudaDevice made.
  static const CudaStreamHandle* handle(const Stream& stream);

 private:
  class CudaStream;
  class CudaEvent;
  friend struct CudaKernels;
  static Kernels make_kernels(const char* arithmetic);

  const DtrainCuda& table_;
  int index_;
  CudaGpu about_{};
  std::string arithmetic_;
  Kernels kernels_{};
  std::atomic<std::uint64_t> allocations_{0};
  std::atomic<std::size_t> allocated_{0}; ///< Bytes.
  std::atomic<std::size_t> most_allocated_{0};
  std::unique_ptr<CudaStream> stream_;
};

/// The plug-in beside this program, loaded once. Throws UsageError beginning with `flag` where
/// there is none, or it is of another version.
const DtrainCuda& cuda_plugin(const std::string& flag);

} // namespace trainer
