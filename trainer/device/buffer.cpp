#include "trainer/device/buffer.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "trainer/huge_pages.h"

namespace trainer {
namespace {

constexpr std::align_val_t k_buffer_alignment{64};

thread_local BufferCount* counts = nullptr;

void* zeroed(std::size_t bytes) {
  void* memory = ::operator new[](bytes, k_buffer_alignment);
  use_huge_pages({static_cast<const std::byte*>(memory), bytes});
  std::memset(memory, 0, bytes);
  return memory;
}

} // namespace

Buffer::Buffer(std::size_t count, DType dtype)
    : Buffer(counts != nullptr
                 ? counts->add(paged(count, dtype))
                 : Buffer(zeroed(count * size_of(dtype)), count, dtype, {},
                          [](void* memory) { ::operator delete[](memory, k_buffer_alignment); })) {}

Buffer Buffer::paged(std::size_t count, DType dtype) {
  const std::size_t bytes = std::max<std::size_t>(count * size_of(dtype), 1);
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    throw std::bad_alloc();
  }
  return {memory, count, dtype, {}, [bytes](void* it) { munmap(it, bytes); }};
}

BufferCount::BufferCount() : outer_(counts) { counts = this; }

BufferCount::~BufferCount() { counts = outer_; }

Buffer BufferCount::add(Buffer buffer) {
  bytes_ += buffer.bytes();
  return buffer;
}

} // namespace trainer
