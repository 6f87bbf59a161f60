// The user's templates from which a job was made, in its folder: later plans of the job are made
// from them, too, even if the originals have changed.
#pragma once

#include "backends/supervised/store/job_store.h"
#include "submit/job_spec.h"
#include "submit/template/templates.h"

namespace dtrain {

/// As template.FILE. Throws Error.
void write_templates(const JobFolder& folder, const Templates& templates);

Templates saved_templates(const JobFolder& folder, const JobSpec& job);

} // namespace dtrain
