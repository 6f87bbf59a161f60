// Zeroed, page-aligned memory of this process, for communicators that share none with their peers.
#pragma once

#include <cstddef>
#include <span>

namespace trainer {

class PrivateMemory {
 public:
  /// Throws Error when the machine has no such amount.
  explicit PrivateMemory(std::size_t count);
  ~PrivateMemory();
  PrivateMemory(const PrivateMemory&) = delete;
  PrivateMemory& operator=(const PrivateMemory&) = delete;

  std::span<float> floats() const noexcept { return floats_; }

 private:
  std::span<float> floats_;
};

} // namespace trainer
