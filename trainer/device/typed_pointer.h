// A pointer to activations or their gradients, with their type: a device keeps them in float32 or
// bf16 (Device::activation_type()); kernels compute in float32.
#pragma once

#include <cassert>
#include <cstddef>

#include "trainer/device/buffer.h"
#include "trainer/device/halves.h"

namespace trainer {

/// The DType of float and of Bf16Value.
template <typename Value>
inline constexpr DType k_type_of = DType::f32;
template <>
inline constexpr DType k_type_of<Bf16Value> = DType::bf16;

struct TypedPointer {
  void* memory = nullptr;
  DType type = DType::f32; ///< Or bf16.

  constexpr TypedPointer() = default;
  constexpr TypedPointer(void* memory_, DType type_) : memory(memory_), type(type_) {}
  // NOLINTNEXTLINE(google-explicit-constructor): float32 is what most of it is.
  constexpr TypedPointer(float* floats) : memory(floats) {}
  // NOLINTNEXTLINE(google-explicit-constructor)
  TypedPointer(const Buffer& buffer) : memory(buffer.memory()), type(buffer.dtype()) {}

  /// `Value`: float or Bf16Value, as `type` says.
  template <typename Value>
  Value* as() const {
    assert(memory == nullptr || type == k_type_of<Value>);
    return static_cast<Value*>(memory);
  }
  /// `n` values on.
  TypedPointer operator+(std::size_t n) const {
    return {static_cast<std::byte*>(memory) + n * size_of(type), type};
  }
  constexpr explicit operator bool() const { return memory != nullptr; }
  bool operator==(const TypedPointer&) const = default;
};

struct ConstTypedPointer {
  const void* memory = nullptr;
  DType type = DType::f32; ///< Or bf16.

  constexpr ConstTypedPointer() = default;
  constexpr ConstTypedPointer(const void* memory_, DType type_) : memory(memory_), type(type_) {}
  // NOLINTNEXTLINE(google-explicit-constructor): as above.
  constexpr ConstTypedPointer(const float* floats) : memory(floats) {}
  // NOLINTNEXTLINE(google-explicit-constructor)
  constexpr ConstTypedPointer(const TypedPointer& other) : memory(other.memory), type(other.type) {}
  // NOLINTNEXTLINE(google-explicit-constructor)
  ConstTypedPointer(const Buffer& buffer) : memory(buffer.memory()), type(buffer.dtype()) {}

  template <typename Value>
  const Value* as() const {
    assert(memory == nullptr || type == k_type_of<Value>);
    return static_cast<const Value*>(memory);
  }
  ConstTypedPointer operator+(std::size_t n) const {
    return {static_cast<const std::byte*>(memory) + n * size_of(type), type};
  }
  constexpr explicit operator bool() const { return memory != nullptr; }
  bool operator==(const ConstTypedPointer&) const = default;
};

} // namespace trainer
