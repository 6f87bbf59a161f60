// A warp's tensor cores on the CPU: trainer/device/cuda/products/mma.cuh says which lane has what.
#pragma once

#include <bit>
#include <cmath>
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

inline void add_tf32_mma(float (&d)[4], const float (&a)[4], float b0, float b1) {
  const auto both = [](float low, float high) {
    return std::bit_cast<std::uint32_t>(low) | std::uint64_t{std::bit_cast<std::uint32_t>(high)}
                                                   << 32U;
  };
  const auto one = [](std::uint64_t words, int which) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(words >> 32 * which));
  };
  const auto first = cuda_on_cpu::gather(both(a[0], a[1])); // Steps below 4, of rows g and g + 8.
  const auto second = cuda_on_cpu::gather(both(a[2], a[3]));
  const auto other = cuda_on_cpu::gather(both(b0, b1));
  const int lane = cuda_on_cpu::self().lane;
  for (int i = 0; i < 4; ++i) {
    const int column = 2 * (lane % 4) + i % 2;
    for (int step = 0; step < 8; ++step) {
      const auto& of_a = step < 4 ? first : second;
      d[i] += one(of_a[static_cast<std::size_t>(lane / 4 * 4 + step % 4)], i / 2) *
              one(other[static_cast<std::size_t>(column * 4 + step % 4)], step / 4);
    }
  }
}
/// To nearest, ties away from zero.
inline float round_to_tf32(float value) {
  constexpr std::uint32_t k_dropped = 0x1fff;
  return std::isfinite(value)
             ? std::bit_cast<float>((std::bit_cast<std::uint32_t>(value) + k_dropped / 2 + 1) &
                                    ~k_dropped)
             : value;
}

/// Of a lane the two values of each square that load() says, by squares' rows that all lanes name.
template <typename Load>
void load_squares_by(const void* row, std::uint32_t (&to)[4], const Load& load) {
  const auto rows = cuda_on_cpu::gather(reinterpret_cast<std::uintptr_t>(row));
  for (std::size_t square = 0; square < 4; ++square) {
    const auto value = [&](int r, int column) {
      std::uint16_t found = 0;
      const auto* const begin =
          reinterpret_cast<const std::uint16_t*>(rows[8 * square + static_cast<std::size_t>(r)]);
      std::memcpy(&found, begin + column, sizeof found);
      return std::uint32_t{found};
    };
    to[square] = load(value);
  }
}

inline void load_squares(const void* row, std::uint32_t (&to)[4]) {
  const int g = cuda_on_cpu::self().lane / 4;
  const int t = cuda_on_cpu::self().lane % 4;
  load_squares_by(row, to,
                  [&](const auto& value) { return value(g, 2 * t) | value(g, 2 * t + 1) << 16U; });
}
inline void load_turned_squares(const void* row, std::uint32_t (&to)[4]) {
  const int g = cuda_on_cpu::self().lane / 4;
  const int t = cuda_on_cpu::self().lane % 4;
  load_squares_by(row, to,
                  [&](const auto& value) { return value(2 * t, g) | value(2 * t + 1, g) << 16U; });
}

/// Carried out when the thread waits, no earlier: what is read before is found.
template <int Bytes>
void copy_behind(const void* from, void* to, bool is_there) {
  cuda_on_cpu::self().copies.push_back({is_there ? from : nullptr, to, Bytes});
}
inline void wait_for_copies() {
  auto& copies = cuda_on_cpu::self().copies;
  for (const cuda_on_cpu::Copy& copy : copies) {
    if (copy.from != nullptr) {
      std::memcpy(copy.to, copy.from, copy.bytes);
    } else {
      std::memset(copy.to, 0, copy.bytes);
    }
  }
  copies.clear();
}

inline float power_of_two(float x) { return exp2f(x); }
inline float reciprocal(float x) { return 1 / x; }

} // namespace
} // namespace trainer
