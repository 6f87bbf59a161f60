// The memory of this machine.
#pragma once

#include <algorithm>
#include <cstddef>

#include <unistd.h>

namespace trainer {

/// Physical memory, used or not.
inline std::size_t host_memory_bytes() {
  return static_cast<std::size_t>(std::max(sysconf(_SC_PHYS_PAGES), 1L)) *
         static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

} // namespace trainer
