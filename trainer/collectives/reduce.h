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

/// For arrays that do not overlap. memcpy uses `rep movsb` for lengths like a piece's, which takes
/// some cores three times as long if source and target differ in their offset within a cache line.
void copy_bytes(std::byte* into, const std::byte* from, std::size_t bytes);

/// Each out[k][i] = (in[0][i] + in[1][i]) + … . An `out` may be one of `in`.
void sum_to_all(std::span<float* const> out, std::span<const float* const> in, std::size_t count);

/// For any type: the sum of all `in`, in order, to each of `out`, which may be one of `in`. Float32
/// is rounded as it travels as `wire`, even a single `in`. Bytes have a single `in`.
void sum_values(DType dtype, WireType wire, std::span<std::byte* const> out,
                std::span<const std::byte* const> in, std::size_t count);

/// into[i] = from[i] + into[i], of any type that can be added.
void add_values(DType dtype, std::byte* into, const std::byte* from, std::size_t count);

} // namespace trainer
