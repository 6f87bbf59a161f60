// Floats on a device: here the host's, aligned to a cache line and zeroed.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <span>

namespace trainer {

class Buffer {
 public:
  explicit Buffer(std::size_t count)
      : data_(static_cast<float*>(::operator new[](count * sizeof(float), k_alignment))),
        count_(count) {
    for (float& value : span()) {
      value = 0;
    }
  }

  float* data() const { return data_.get(); }
  std::size_t size() const { return count_; }
  std::span<float> span() const { return {data_.get(), count_}; }

 private:
  static constexpr std::align_val_t k_alignment{64};
  struct Free {
    void operator()(float* data) const { ::operator delete[](data, k_alignment); }
  };
  std::unique_ptr<float[], Free> data_;
  std::size_t count_;
};

} // namespace trainer
