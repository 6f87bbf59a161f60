// The CPU as a device: its memory is the host's, and work put on a stream is done on return.
#pragma once

#include <memory>
#include <string>

#include "trainer/device/cpu/kernels.h"
#include "trainer/device/device.h"

namespace trainer {

class CpuStream final : public Stream {
 public:
  /// `kernels`: those of the device.
  explicit CpuStream(const CpuKernels& kernels) : kernels_(kernels) {}

  std::unique_ptr<Event> record() override;
  std::unique_ptr<Event> record_timed() override;
  void wait(const Event& /*event*/) override {}
  void copy(const void* from, void* to, std::size_t bytes) override;
  void clear(void* memory, std::size_t bytes) override;

  /// The kernels of a stream's device, for kernels that call others.
  static const CpuKernels& kernels_of(const Stream& stream) {
    return static_cast<const CpuStream&>(stream).kernels_;
  }

 private:
  const CpuKernels& kernels_;
};

class CpuDevice : public Device {
 public:
  /// `why`: the reason of an automatic choice, for describe().
  explicit CpuDevice(const CpuKernels& kernels = best_kernels(), std::string why = "");
  CpuDevice(const CpuDevice&) = delete; // Its streams point to its kernels.
  CpuDevice& operator=(const CpuDevice&) = delete;

  std::string describe() const override;
  bool is_host() const override { return true; }
  Buffer allocate(std::size_t count, DType dtype) override { return {count, dtype}; }
  Buffer allocate_paged(std::size_t count) override { return Buffer::paged(count, DType::f32); }
  std::size_t page_bytes() const override;
  void discard(std::span<float> part) override;
  Buffer allocate_pinned(std::size_t count, DType dtype) override { return {count, dtype}; }
  Stream& stream() override { return *stream_; }
  std::unique_ptr<Stream> make_stream() override;
  const Kernels& kernels() const override { return kernels_; }
  const CpuKernels* cpu_kernels() const override { return &kernels_; }
  void multiply_in(DType type) override;

 private:
  CpuKernels kernels_;
  std::string why_;
  std::unique_ptr<Stream> stream_;
};

} // namespace trainer
