// Loss and accuracy over held-out samples, shared out over the ranks.
#pragma once

#include "trainer/collectives/communicator.h"
#include "trainer/models/mlp.h"

namespace trainer {

/// Rank r scores samples [count·r/n, count·(r+1)/n), in batches of at most `batch_size`; the sum is
/// the same on every rank. A collective.
Score evaluate(Mlp& model, const Split& split, const CpuKernels& kernels, std::size_t batch_size,
               Communicator& communicator);

} // namespace trainer
