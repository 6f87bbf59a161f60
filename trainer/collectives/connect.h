// Makes a communicator of ranks that have met.
#pragma once

#include <memory>
#include <string>

#include "trainer/collectives/communicator.h"
#include "trainer/job/rendezvous.h"

namespace trainer {

/// Finds out who shares a host, makes data connections and starts the heartbeat. Collective.
std::unique_ptr<Communicator> connect_ranks(Star star, const std::string& job_token,
                                            const CommOptions& options);

} // namespace trainer
