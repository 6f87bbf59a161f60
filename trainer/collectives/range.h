// Memory that a collective works on: so many values of one type.
#pragma once

#include <concepts>
#include <cstddef>
#include <span>
#include <type_traits>

#include "trainer/device/buffer.h"

namespace trainer {

/// "fp32", "bf16", "fp16", "fp64" or "bytes".
const char* dtype_name(DType dtype);

/// Values in the memory of the host or of a device. Bytes can be gathered and broadcast; all other
/// types can also be added up.
class Range {
 public:
  Range() = default;
  Range(void* memory, std::size_t count, DType dtype)
      : memory_(static_cast<std::byte*>(memory)), count_(count), dtype_(dtype) {}
  // NOLINTBEGIN(google-explicit-constructor,bugprone-forwarding-reference-overload): the type of
  // the values says it.
  template <typename Values>
  requires std::is_convertible_v<Values&&, std::span<float>> Range(Values&& values)
      : Range(std::span<float>(values), DType::f32) {}
  template <typename Values>
  requires std::is_convertible_v<Values&&, std::span<double>> Range(Values&& values)
      : Range(std::span<double>(values), DType::f64) {}
  template <typename Values>
  requires std::is_convertible_v<Values&&, std::span<std::byte>> Range(Values&& values)
      : Range(std::span<std::byte>(values), DType::u8) {}
  // NOLINTEND(google-explicit-constructor,bugprone-forwarding-reference-overload)

  std::size_t count() const { return count_; }
  DType dtype() const { return dtype_; }
  std::byte* data() const { return memory_; }
  std::size_t size_bytes() const { return count_ * size_of(dtype_); }
  std::span<std::byte> bytes() const { return {memory_, size_bytes()}; }

  /// `count` values from `first` on.
  Range part(std::size_t first, std::size_t count) const {
    return {memory_ + first * size_of(dtype_), count, dtype_};
  }
  /// Whether its first value is in that memory.
  template <typename Value>
  bool begins_in(std::span<Value> memory) const {
    const auto bytes = std::as_bytes(memory);
    return memory_ >= bytes.data() && memory_ < bytes.data() + bytes.size();
  }
  /// A range of the same size and type elsewhere.
  Range at(void* memory) const { return {memory, count_, dtype_}; }

 private:
  template <typename Value>
  Range(std::span<Value> values, DType dtype) : Range(values.data(), values.size(), dtype) {}

  std::byte* memory_ = nullptr;
  std::size_t count_ = 0;
  DType dtype_ = DType::u8;
};

} // namespace trainer
