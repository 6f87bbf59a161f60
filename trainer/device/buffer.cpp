#include "trainer/device/buffer.h"

#include <cstring>
#include <new>

namespace trainer {
namespace {

constexpr std::align_val_t k_buffer_alignment{64};

void* zeroed(std::size_t bytes) {
  void* memory = ::operator new[](bytes, k_buffer_alignment);
  std::memset(memory, 0, bytes);
  return memory;
}

} // namespace

Buffer::Buffer(std::size_t count, DType dtype)
    : Buffer(zeroed(count * size_of(dtype)), count, dtype, {},
             [](void* memory) { ::operator delete[](memory, k_buffer_alignment); }) {}

} // namespace trainer
