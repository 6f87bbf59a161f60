// A GPU to test with: the plug-in's as tests/cuda_on_cpu compiles it, or, in unit-gpu, the
// machine's.
#pragma once

#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "trainer/device/cuda/cuda_device.h"
#include "trainer/random.h"

namespace trainer::test {

inline std::unique_ptr<CudaDevice> make_gpu(int index = 0) {
#ifdef DTRAIN_ON_GPU
  return make_cuda_device(index, "unit-gpu");
#else
  return make_cuda_device(index, "--device=cuda", dtrain_cuda_device);
#endif
}

/// Values on a device: `values`, until another is put there.
template <typename T>
class On {
 public:
  On(Device& device, std::vector<T> values)
      : device_(&device), count_(values.size()),
        buffer_(device.allocate(count_ * sizeof(T), DType::u8)) {
    device.stream().copy(values.data(), buffer_.memory(), buffer_.bytes());
  }
  T* data() { return static_cast<T*>(buffer_.memory()); }
  std::vector<T> read() {
    std::vector<T> values(count_);
    device_->stream().copy(buffer_.memory(), values.data(), buffer_.bytes());
    return values;
  }

 private:
  Device* device_;
  std::size_t count_;
  Buffer buffer_;
};

/// Between -1 and 1, the same for the same `salt`.
inline std::vector<float> numbers(std::size_t count, std::uint32_t salt) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = 2 * uniform(random_at(1, RandomStream::weights, salt, i)[0]) - 1;
  }
  return values;
}

} // namespace trainer::test
