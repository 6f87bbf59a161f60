// Loss and accuracy over held-out samples, shared out over the ranks.
#pragma once

#include "trainer/collectives/communicator.h"
#include "trainer/data/dataset.h"
#include "trainer/device/device.h"
#include "trainer/models/model.h"

namespace trainer {

/// Rank r scores samples [count·r/n, count·(r+1)/n), in batches of at most `batch_size`; the sum is
/// the same on every rank. A collective. Where ranks share the owner's parameters, every rank makes
/// as many passes.
Score evaluate(Model& model, ParameterOwner& owner, const Split& split, Device& device,
               std::size_t batch_size, Communicator& communicator);

} // namespace trainer
