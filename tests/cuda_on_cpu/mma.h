// A warp's tensor cores on the CPU: trainer/device/cuda/mma.cuh says which lane has what.
#pragma once

#include <cstdint>

#include "tests/cuda_on_cpu/cuda_on_cpu.h"
#include "trainer/device/halves.h"

namespace trainer {
namespace {

inline std::uint32_t pack_bf16(float first, float second) {
  return Bf16::narrow(first) | std::uint32_t{Bf16::narrow(second)} << 16U;
}

inline void add_mma(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                    std::uint32_t b1) {
  const auto both = [](std::uint32_t low, std::uint32_t high) {
    return low | std::uint64_t{high} << 32U;
  };
  const auto half = [](const std::uint64_t words, int which) {
    return Bf16::widen(static_cast<std::uint16_t>(words >> 16 * which));
  };
  const auto first = cuda_on_cpu::gather(both(a[0], a[1])); // Steps below 8, of rows g and g + 8.
  const auto second = cuda_on_cpu::gather(both(a[2], a[3]));
  const auto other = cuda_on_cpu::gather(both(b0, b1));
  const int lane = cuda_on_cpu::self().lane;
  for (int i = 0; i < 4; ++i) {
    const int down = i / 2;
    const int column = 2 * (lane % 4) + i % 2;
    for (int step = 0; step < 16; ++step) {
      const auto& of_a = step < 8 ? first : second;
      const int t = step % 8 / 2;
      d[i] += half(of_a[static_cast<std::size_t>(lane / 4 * 4 + t)], 2 * down + step % 2) *
              half(other[static_cast<std::size_t>(column * 4 + t)], 2 * (step / 8) + step % 2);
    }
  }
}

} // namespace
} // namespace trainer
