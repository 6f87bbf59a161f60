// The three sizes of a batch, of which two give the third.
#pragma once

#include <string>

#include "trainer/options/options.h"

namespace trainer {

/// Of samples in a step of all ranks, rows in a pass of a rank, and passes in a step, infers those
/// that were not given (0), for so many ranks. Gives a line that says where each comes from; empty
/// where none was asked for but --batch-size. Throws UsageError where they contradict each other.
/// `is_elastic`: the ranks come and go, and a global batch that was given stays.
std::string settle_batch(TrainerOptions& options, int ranks, bool is_elastic = false);

} // namespace trainer
