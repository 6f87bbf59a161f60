// The communicator of a job with one rank: every collective is done before it starts.
#pragma once

#include <memory>

#include "trainer/collectives/communicator.h"

namespace trainer {

class Device;

/// `device`: the rank's device, if it needs one. `name`: for messages.
std::unique_ptr<Communicator> make_single_rank(Device* device = nullptr,
                                               std::string name = "rank 0");

} // namespace trainer
