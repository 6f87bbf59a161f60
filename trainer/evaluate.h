// Loss and accuracy over held-out samples, shared out over the ranks.
#pragma once

#include <functional>

#include "trainer/collectives/communicator.h"
#include "trainer/data/dataset.h"
#include "trainer/device/device.h"
#include "trainer/models/model.h"

namespace trainer {

/// Rank r scores samples [count·r/n, count·(r+1)/n), in batches of at most `batch_size`; the sum is
/// the same on every rank. A collective. `begin_pass`, where ranks share the parameters: gives a
/// pass its hooks; every rank then makes as many passes.
Score evaluate(Model& model, const Split& split, Device& device, std::size_t batch_size,
               Communicator& communicator, const std::function<Hooks()>& begin_pass = {});

} // namespace trainer
