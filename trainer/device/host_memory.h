// The memory of this machine.
#pragma once

#include <algorithm>
#include <cstddef>

#include <unistd.h>

namespace trainer {

/// Of a page.
inline std::size_t host_page_bytes() {
  static const auto bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

/// Physical memory, used or not.
inline std::size_t host_memory_bytes() {
  return static_cast<std::size_t>(std::max(sysconf(_SC_PHYS_PAGES), 1L)) * host_page_bytes();
}

} // namespace trainer
