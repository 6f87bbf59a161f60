// Drops on the CPU what nn/dropout.h says.
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/device/cpu/kernels.h"
#include "trainer/nn/dropout.h"

namespace trainer {

class Dropout {
 public:
  Dropout(const DropoutRule& rule, std::uint32_t site, const CpuKernels& kernels);

  /// For the pass' rows, of `words` words of 16 bits each.
  void draw(const TextPass& pass, std::size_t words);
  /// What was drawn last, from word `first` on.
  Dropped at(std::size_t first = 0) const {
    return bits_.empty() ? Dropped{} : Dropped{bits_.data() + first, scale_};
  }

 private:
  DropoutRule rule_;
  std::uint32_t site_;
  float scale_;
  const CpuKernels* kernels_;
  std::vector<std::uint16_t> bits_;
};

} // namespace trainer
