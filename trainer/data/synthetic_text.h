// Random text, for benchmarks.
#pragma once

#include "trainer/data/dataset.h"

namespace trainer {

/// Rows of `length` tokens, to predict 15 % of them, which are masked, or each next token.
Dataset synthetic_text(std::size_t count, std::size_t length, std::size_t vocabulary,
                       std::uint64_t seed, bool is_causal = false);

} // namespace trainer
