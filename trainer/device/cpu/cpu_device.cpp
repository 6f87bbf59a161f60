#include "trainer/device/cpu/cpu_device.h"

#include <cstring>
#include <utility>

#include <fmt/format.h>

namespace trainer {
namespace {

class CpuEvent final : public Event {
 public:
  bool has_passed() const override { return true; }
  void wait() const override {}
};

class CpuStream final : public Stream {
 public:
  std::unique_ptr<Event> record() override { return std::make_unique<CpuEvent>(); }
  void wait(const Event& /*event*/) override {}
  void copy(const void* from, void* to, std::size_t bytes) override {
    std::memcpy(to, from, bytes);
  }
  void clear(void* memory, std::size_t bytes) override { std::memset(memory, 0, bytes); }
};

} // namespace

CpuDevice::CpuDevice(const CpuKernels& kernels, std::string why)
    : kernels_(kernels), why_(std::move(why)), stream_(std::make_unique<CpuStream>()) {}

std::string CpuDevice::describe() const {
  return fmt::format("cpu, {} kernels, 1 thread{}", kernels_.name, why_);
}

std::unique_ptr<Stream> CpuDevice::make_stream() { return std::make_unique<CpuStream>(); }

} // namespace trainer
