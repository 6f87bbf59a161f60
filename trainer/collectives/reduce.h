// Sums and copies of arrays. AVX2 where the machine has it, found at run time; all variants
// give the same bits, as each element is added in the order of the arguments.
#pragma once

#include <cstddef>
#include <span>

#include "trainer/collectives/range.h"
#include "trainer/collectives/wire.h"

namespace trainer {

/// into[i] = from[i] + into[i]
void add_into(float* into, const float* from, std::size_t count);

/// Of arrays apart from each other. memcpy takes `rep movsb` for lengths like a piece's, which some
/// cores do at a third of the speed where source and target lie differently within a cache line.
void copy_bytes(std::byte* into, const std::byte* from, std::size_t bytes);

/// Each out[k][i] = (in[0][i] + in[1][i]) + … . An `out` may be one of `in`.
void sum_to_all(std::span<float* const> out, std::span<const float* const> in, std::size_t count);

/// Of any type: the sum of what `in` points to, in its order, to each of `out`, which may be one of
/// `in`. Float32 is rounded as it travels as `wire`, one `in` alone too. Bytes have one `in`.
void sum_values(DType dtype, WireType wire, std::span<std::byte* const> out,
                std::span<const std::byte* const> in, std::size_t count);

/// into[i] = from[i] + into[i], of any type that can be added.
void add_values(DType dtype, std::byte* into, const std::byte* from, std::size_t count);

} // namespace trainer
