#include "trainer/optim/precision.h"

#include <cstddef>

#include "trainer/device/cpu/kernels.h"
#include "trainer/device/halves.h"

namespace trainer {
namespace {

bool round_to_fp16(std::span<const float> from, std::span<float> to) {
  std::uint32_t odd = 0; // Its highest bit: a value was not finite.
  for (std::size_t i = 0; i < from.size(); ++i) {
    const float value = OverflowingFp16::widen(OverflowingFp16::narrow(from[i]));
    odd |= (float_bits(value) & k_float_size) + (0x80000000U - k_float_infinity);
    to[i] = value;
  }
  return (odd >> 31) == 0;
}

} // namespace

bool round_to(Precision precision, std::span<const float> from, std::span<float> to) {
  static const CpuKernels& kernels = best_kernels();
  return precision == Precision::fp16
             ? round_to_fp16(from, to)
             : kernels.parts.round_bf16(from.size(), from.data(), to.data());
}

} // namespace trainer
