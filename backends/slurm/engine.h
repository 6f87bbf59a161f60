// Slurm, as the registry knows it.
#pragma once

#include "backends/engine.h"

namespace dtrain::slurm {

const Engine& engine();

} // namespace dtrain::slurm
