// From ranks that have met to a communicator.
#pragma once

#include <memory>
#include <string>

#include "trainer/comm/communicator.h"
#include "trainer/comm/rendezvous.h"

namespace trainer {

/// Finds out who shares a host, makes data connections and starts the heartbeat. Collective.
std::unique_ptr<Communicator> connect_ranks(Star star, const std::string& job_token,
                                            const CommOptions& options);

} // namespace trainer
