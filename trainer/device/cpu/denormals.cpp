#include "trainer/device/cpu/denormals.h"

#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace trainer {

#if defined(__x86_64__)

namespace {
constexpr unsigned k_flush_to_zero = 1U << 15;
constexpr unsigned k_denormals_are_zero = 1U << 6;
constexpr unsigned k_both = k_flush_to_zero | k_denormals_are_zero;
} // namespace

void flush_denormals() noexcept { _mm_setcsr(_mm_getcsr() | k_both); }

bool flushes_denormals() noexcept { return (_mm_getcsr() & k_both) == k_both; }

#elif defined(__aarch64__)

namespace {

constexpr std::uint64_t k_flush_to_zero = 1U << 24; // For inputs and results alike.

std::uint64_t control() noexcept {
  std::uint64_t value = 0;
  asm volatile("mrs %0, fpcr" : "=r"(value));
  return value;
}

} // namespace

void flush_denormals() noexcept {
  asm volatile("msr fpcr, %0" : : "r"(control() | k_flush_to_zero));
}

bool flushes_denormals() noexcept { return (control() & k_flush_to_zero) != 0; }

#else

void flush_denormals() noexcept {}

bool flushes_denormals() noexcept { return false; }

#endif

} // namespace trainer
