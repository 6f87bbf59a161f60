#include "trainer/huge_pages.h"

#include <sys/mman.h>

#include <memory>

namespace trainer {

void use_huge_pages(std::span<const std::byte> memory) {
  constexpr std::size_t k_huge_page = 2UL << 20;
  constexpr int k_collapse = 25; // MADV_COLLAPSE, of Linux 6.1: pages that are in use too, at once.
  void* first = const_cast<std::byte*>(memory.data());
  std::size_t bytes = memory.size();
  if (std::align(k_huge_page, k_huge_page, first, bytes) != nullptr) {
    bytes = bytes / k_huge_page * k_huge_page;
    (void)madvise(first, bytes, MADV_HUGEPAGE);
    (void)madvise(first, bytes, k_collapse);
  }
}

} // namespace trainer
