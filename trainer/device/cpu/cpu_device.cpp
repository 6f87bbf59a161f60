#include "trainer/device/cpu/cpu_device.h"

#include <cstring>
#include <memory>
#include <utility>

#include <fmt/format.h>
#include <sys/mman.h>

#include "trainer/clock.h"
#include "trainer/device/host_memory.h"

namespace trainer {
namespace {

class CpuEvent final : public Event {
 public:
  /// `at`: when it passed, if it is timed.
  explicit CpuEvent(double at = 0) : at_(at) {}
  bool has_passed() const override { return true; }
  void wait() const override {}
  double seconds_since(const Event& earlier) const override {
    return at_ - static_cast<const CpuEvent&>(earlier).at_;
  }

 private:
  double at_;
};

} // namespace

std::unique_ptr<Event> CpuStream::record() { return std::make_unique<CpuEvent>(); }
std::unique_ptr<Event> CpuStream::record_timed() { return std::make_unique<CpuEvent>(now()); }

void CpuStream::copy(const void* from, void* to, std::size_t bytes) {
  if (bytes > 0) { // Of none, both may be null.
    std::memcpy(to, from, bytes);
  }
}

void CpuStream::clear(void* memory, std::size_t bytes) { std::memset(memory, 0, bytes); }

CpuDevice::CpuDevice(const CpuKernels& kernels, std::string why)
    : kernels_(with_bf16_instructions(kernels)), why_(std::move(why)), stream_(make_stream()) {}

std::string CpuDevice::describe() const {
  return fmt::format("cpu, {} kernels, 1 thread{}", kernels_.name, why_);
}

void CpuDevice::multiply_in(DType type) {
  if (type == DType::bf16) {
    kernels_.product = kernels_.gemm_bf16;
  }
}

std::unique_ptr<Stream> CpuDevice::make_stream() { return std::make_unique<CpuStream>(kernels_); }

namespace {

/// The whole pages within the range: pages shared with other data are left out.
std::span<std::byte> whole_pages(std::span<float> part) {
  const std::size_t page = host_page_bytes();
  void* first = part.data();
  std::size_t bytes = part.size_bytes();
  if (std::align(page, page, first, bytes) == nullptr) {
    return {};
  }
  return {static_cast<std::byte*>(first), bytes / page * page};
}

} // namespace

std::size_t CpuDevice::page_bytes() const { return host_page_bytes(); }

void CpuDevice::discard(std::span<float> part) {
  if (const auto pages = whole_pages(part); !pages.empty()) {
    madvise(pages.data(), pages.size(), MADV_DONTNEED);
  }
}

} // namespace trainer
