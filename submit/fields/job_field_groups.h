// The table of job_fields.h, in parts.
#pragma once

#include "submit/fields/job_fields.h"

#include <vector>

namespace dtrain {

/// Roles besides the workers, and what each role asks for.
std::vector<JobField> role_fields();

/// When a job starts and ends, and who may be told so.
std::vector<JobField> life_cycle_fields();

/// What the ranks find where they start: code, files, secrets; and TensorBoard beside them.
std::vector<JobField> code_fields();

/// Where in a cluster its containers run, and with what.
std::vector<JobField> placement_fields();

} // namespace dtrain
