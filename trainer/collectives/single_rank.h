// The communicator of a job with one rank: every collective is done before it starts.
#pragma once

#include <memory>

#include "trainer/collectives/communicator.h"

namespace trainer {

std::unique_ptr<Communicator> make_single_rank();

} // namespace trainer
