// The table of job_fields.h, in parts.
#pragma once

#include "submit/fields/job_fields.h"

#include <span>

namespace dtrain {

/// Roles besides the workers, and what each role asks for.
std::span<const JobField> role_fields();

/// When a job starts and ends, and who may be told so.
std::span<const JobField> life_cycle_fields();

/// What ranks find at their start: code, files, secrets; and TensorBoard beside them.
std::span<const JobField> code_fields();

/// Where in a cluster the containers run, and with which resources.
std::span<const JobField> placement_fields();

} // namespace dtrain
