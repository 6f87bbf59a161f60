// The communicator of a job with several ranks: a transport, and the heartbeat beside it.
#pragma once

#include <memory>

#include "trainer/collectives/communicator.h"
#include "trainer/collectives/transport.h"
#include "trainer/job/health.h"

namespace trainer {

std::unique_ptr<Communicator> make_job_communicator(int rank, int world_size,
                                                    std::unique_ptr<Health> health,
                                                    std::unique_ptr<Transport> transport,
                                                    std::string description);

} // namespace trainer
