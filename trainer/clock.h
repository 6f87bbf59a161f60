#pragma once

#include <chrono>

namespace trainer {

/// Seconds on a clock that never steps back.
inline double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

} // namespace trainer
