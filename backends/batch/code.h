// A job's code on its way to the folder that the nodes share: as bytes, since that folder may be
// reached by ssh alone.
#pragma once

#include "backends/plan.h"

#include <string>

namespace dtrain::batch {

/// The code of --sync-mode as a tar archive with gzip. Throws UsageError naming what cannot be
/// fetched.
std::string packed_code(const JobSpec& job, const SubmitSink& tell);

} // namespace dtrain::batch
