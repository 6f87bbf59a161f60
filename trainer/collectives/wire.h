// What gradients are on their way between ranks: float32, or half as many bytes.
//
// Rounded, R: to the nearest of the type, ties to even. A sum of 16-bit parts is added up in
// float32 and rounded wherever it goes to another rank, so that over n ranks
//
//   s = R(x_1);  s = R(s + x_k) for k = 2 … n, in the ring's order
//
// on every rank and by every transport, memory included, where nothing is saved but the bits stay
// the same.
//
// Values that are 16-bit ones from the start are added up in the same way, of x_k as they are.
//
// bf16 has float32's range. fp16 has three more bits and ends at 65504: what is finite and larger
// becomes ±65504, a gradient cut off rather than infinite, and what is below 6e-8 becomes 0;
// infinity and NaN stay what they are, so that a run that has diverged shows it.
//
// AVX2 and F16C where the machine has them, found at run time; all variants give the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "trainer/device/buffer.h"

namespace trainer {

enum class WireType : std::uint32_t { fp32 = 0, bf16 = 1, fp16 = 2 };

const char* wire_type_name(WireType type);
/// None for a word other than wire_type_name()'s.
std::optional<WireType> parse_wire_type(std::string_view name);
/// The type as a range's values.
DType dtype_of(WireType type);
/// Bytes of one value on its way.
std::size_t wire_size(WireType type);

/// How a buffer of some length is all-reduced, in the terms of tcp/ring.h and the others.
struct Route {
  std::string how;
  double sent = 0; ///< Bytes that this rank gives to a network; below 0: not known.
};

struct WireKernels {
  /// to[i] = R(from[i])
  void (*narrow)(std::uint16_t* to, const float* from, std::size_t count);
  void (*widen)(float* to, const std::uint16_t* from, std::size_t count);
  /// to[i] = R(arrived[i] + own[i]); `to` may be `arrived`.
  void (*add)(std::uint16_t* to, const std::uint16_t* arrived, const float* own, std::size_t count);
  /// Each out[k][i] = R(R(R(in[0][i]) + in[1][i]) + …). An `out` may be one of `in`.
  void (*sum_to_all)(std::span<float* const> out, std::span<const float* const> in,
                     std::size_t count);
};

/// The sum as `type` gives it: for fp32 that of reduce.h.
void sum_to_all(WireType type, std::span<float* const> out, std::span<const float* const> in,
                std::size_t count);

/// For values that are 16-bit from the start: to[i] = R(arrived[i] + own[i]); `to` may be `arrived`
/// or `own`.
void add_halves(WireType type, std::uint16_t* to, const std::uint16_t* arrived,
                const std::uint16_t* own, std::size_t count);

/// For a 16-bit type.
const WireKernels& wire_kernels(WireType type);
/// The reference for tests of the others.
const WireKernels& portable_wire_kernels(WireType type);

} // namespace trainer
