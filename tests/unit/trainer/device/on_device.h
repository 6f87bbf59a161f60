// Values to test with, and where they lie on a device.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "trainer/device/device.h"
#include "trainer/random.h"

namespace trainer::test {

using Values = std::vector<float>;

/// Between -1 and 1, the same for the same `salt`.
inline Values numbers(std::size_t count, std::uint32_t salt) {
  Values values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = 2 * uniform(random_at(1, RandomStream::weights, salt, i)[0]) - 1;
  }
  return values;
}

/// Rounded to bf16.
inline Values rounded(Values values) {
  for (float& value : values) {
    value = Bf16Value(value);
  }
  return values;
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

/// `values` on a device, in what it keeps activations in.
class Activations {
 public:
  Activations(Device& device, const Values& values)
      : device_(&device), buffer_(device.allocate(values.size(), device.activation_type())) {
    const std::vector<Bf16Value> halves(values.begin(), values.end());
    device.stream().copy(is_float() ? static_cast<const void*>(values.data()) : halves.data(),
                         buffer_.memory(), buffer_.bytes());
  }
  TypedPointer pointer() const { return buffer_; }
  Values read() const {
    Values values(buffer_.size());
    std::vector<Bf16Value> halves(buffer_.size());
    device_->stream().copy(buffer_.memory(),
                           is_float() ? static_cast<void*>(values.data()) : halves.data(),
                           buffer_.bytes());
    return is_float() ? values : Values(halves.begin(), halves.end());
  }

 private:
  bool is_float() const { return buffer_.dtype() == DType::f32; }

  Device* device_;
  Buffer buffer_;
};

} // namespace trainer::test
