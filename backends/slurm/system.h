// Slurm, as the room of queues (backends/batch) has to know it.
#pragma once

#include "backends/batch/queue_system.h"

namespace dtrain::slurm {

const batch::QueueSystem& queue_system();

} // namespace dtrain::slurm
