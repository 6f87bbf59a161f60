#include "trainer/collectives/memory.h"

#include <cstring>

#include <fmt/format.h>
#include <sys/mman.h>

#include "trainer/errors.h"

namespace trainer {

PrivateMemory::PrivateMemory(std::size_t count) {
  if (count == 0) {
    return;
  }
  void* at = mmap(nullptr, count * sizeof(float), PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) {
    throw Error(fmt::format("no memory for {} floats: {}", count, std::strerror(errno)));
  }
  floats_ = {static_cast<float*>(at), count};
}

PrivateMemory::~PrivateMemory() {
  if (!floats_.empty()) {
    munmap(floats_.data(), floats_.size_bytes());
  }
}

} // namespace trainer
