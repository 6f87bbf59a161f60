// Floats on a device: here the host's, aligned to a cache line and zeroed.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>
#include <span>

namespace trainer {

class Buffer {
 public:
  /// Of zeros that take memory only as they are written.
  explicit Buffer(std::size_t count)
      : memory_(std::calloc(count * sizeof(float) + k_alignment, 1)), count_(count) {
    if (memory_ == nullptr) {
      throw std::bad_alloc();
    }
    void* at = memory_.get();
    std::size_t space = count * sizeof(float) + k_alignment;
    data_ = static_cast<float*>(std::align(k_alignment, count * sizeof(float), at, space));
  }

  float* data() const { return data_; }
  std::size_t size() const { return count_; }
  std::span<float> span() const { return {data_, count_}; }

 private:
  static constexpr std::size_t k_alignment = 64;
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  std::unique_ptr<void, Free> memory_;
  std::size_t count_;
  float* data_;
};

} // namespace trainer
