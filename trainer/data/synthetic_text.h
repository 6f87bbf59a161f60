// Random text, for benchmarks.
#pragma once

#include "trainer/data/dataset.h"

namespace trainer {

/// Rows of `length` tokens of which 15 % are masked, or with every next one to be told.
Dataset synthetic_text(std::size_t count, std::size_t length, std::size_t vocabulary,
                       std::uint64_t seed, bool is_causal = false);

} // namespace trainer
