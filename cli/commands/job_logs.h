// A job's log lines on stdout, for `logs` and `submit --wait`.
#pragma once

#include "cli/context.h"
#include "cli/target.h"

namespace dtrain {

void print_logs(Context& context, const Target& target, const JobStatus& job, const LogQuery& query,
                bool timestamps);

} // namespace dtrain
