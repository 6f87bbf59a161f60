// An array of values of one type in a device's memory, zeroed and aligned to a cache line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>

namespace trainer {

enum class DType : std::uint8_t {
  f32,
  bf16,
  f16,
  u8, ///< Bytes.
  f64,
  i32,
  i16,
};

constexpr std::size_t size_of(DType dtype) {
  switch (dtype) {
  case DType::f64:
    return 8;
  case DType::f32:
  case DType::i32:
    return 4;
  case DType::bf16:
  case DType::f16:
  case DType::i16:
    return 2;
  case DType::u8:
    break;
  }
  return 1;
}

/// Where memory is.
struct Memory {
  enum class Kind : std::uint8_t {
    host,
    pinned, ///< Host memory that a GPU can copy from and to by itself.
    cuda,
  };
  Kind kind = Kind::host;
  int index = 0; ///< The GPU's.

  bool operator==(const Memory&) const = default;
};

class Buffer {
 public:
  using Free = std::function<void(void* memory)>; ///< Not called for null.

  /// Floats in host memory.
  explicit Buffer(std::size_t count) : Buffer(count, DType::f32) {}
  Buffer(std::size_t count, DType dtype);
  /// Takes ownership of memory that a device allocated.
  Buffer(void* memory, std::size_t count, DType dtype, Memory place, Free free)
      : memory_(memory, std::move(free)), count_(count), dtype_(dtype), place_(place) {}

  /// Zeroed host memory, whose pages take memory only once they are written to.
  static Buffer paged(std::size_t count, DType dtype);

  std::size_t size() const { return count_; } ///< In values.
  DType dtype() const { return dtype_; }
  Memory place() const { return place_; }
  std::size_t bytes() const { return count_ * size_of(dtype_); }
  void* memory() const { return memory_.get(); }

  /// Of a float32 buffer; only the device's kernels may read it if it is not host memory.
  float* data() const { return static_cast<float*>(memory_.get()); }
  std::span<float> span() const { return {data(), count_}; }

 private:
  std::unique_ptr<void, Free> memory_;
  std::size_t count_;
  DType dtype_ = DType::f32;
  Memory place_;
};

/// Counts the host buffers that this thread allocates during its lifetime; their pages take memory
/// only once they are written to. For --plan-memory.
class BufferCount {
 public:
  BufferCount();
  ~BufferCount();
  BufferCount(const BufferCount&) = delete;
  BufferCount& operator=(const BufferCount&) = delete;

  std::size_t bytes() const { return bytes_; } ///< Of all counted buffers.

 private:
  friend class Buffer;
  Buffer add(Buffer buffer);
  BufferCount* outer_;
  std::size_t bytes_ = 0;
};

} // namespace trainer
