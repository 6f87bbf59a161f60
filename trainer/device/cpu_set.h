// The CPUs that a thread may run on, on a machine of however many.
#pragma once

#include <sched.h>

#include <cstddef>
#include <vector>

namespace trainer {

/// Of the calling thread, as large as this machine's kernel wants it.
class CpuSet {
 public:
  static constexpr int k_most = 1 << 16; ///< CPUs of a machine, as far as it is believed.

  CpuSet() {
    // Fails where the kernel has room for more CPUs.
    while (sched_getaffinity(0, bytes(), bits_.data()) != 0 && 8 * bytes() < k_most) {
      bits_.resize(2 * bits_.size());
    }
  }
  /// At least 1: this thread runs.
  int count() const {
    const int cpus = CPU_COUNT_S(bytes(), bits_.data());
    return cpus > 0 ? cpus : 1;
  }
  bool has(int cpu) const {
    return static_cast<std::size_t>(cpu) < 8 * bytes() &&
           CPU_ISSET_S(static_cast<std::size_t>(cpu), bytes(), bits_.data());
  }
  /// Has the thread run on these from now on. False: it runs where it did.
  bool put(const std::vector<int>& cpus) {
    CPU_ZERO_S(bytes(), bits_.data());
    for (const int cpu : cpus) {
      CPU_SET_S(static_cast<std::size_t>(cpu), bytes(), bits_.data());
    }
    return sched_setaffinity(0, bytes(), bits_.data()) == 0;
  }

 private:
  std::size_t bytes() const { return bits_.size() * sizeof(cpu_set_t); }
  std::vector<cpu_set_t> bits_ = std::vector<cpu_set_t>(1);
};

} // namespace trainer
