// Sums and copies of float arrays. AVX2 where the machine has it, found at run time; all variants
// give the same bits, as each element is added in the order of the arguments.
#pragma once

#include <cstddef>
#include <span>

namespace trainer {

/// into[i] = from[i] + into[i]
void add_into(float* into, const float* from, std::size_t count);

/// Of arrays apart from each other. memcpy takes `rep movsb` for lengths like a piece's, which some
/// cores do at a third of the speed where source and target lie differently within a cache line.
void copy(float* into, const float* from, std::size_t count);

/// Each out[k][i] = (in[0][i] + in[1][i]) + … . An `out` may be one of `in`.
void sum_to_all(std::span<float* const> out, std::span<const float* const> in, std::size_t count);

} // namespace trainer
