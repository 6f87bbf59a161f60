// The templates of a user's that a job was made from, in its folder: what is made of the job later
// is made from them too, whatever lies where they came from by then.
#pragma once

#include "backends/supervised/store/job_store.h"
#include "submit/job_spec.h"
#include "submit/template/templates.h"

namespace dtrain {

/// As template.FILE. Throws Error.
void write_templates(const JobFolder& folder, const Templates& templates);

Templates saved_templates(const JobFolder& folder, const JobSpec& job);

} // namespace dtrain
