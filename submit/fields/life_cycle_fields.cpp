#include "submit/fields/job_field_groups.h"

namespace dtrain {
namespace {

constexpr const char* k_life_cycle_group = "Life cycle";

constexpr JobField k_life_cycle_fields[] = {
    {.key = "runningTimeout",
     .flags = "--running-timeout",
     .member = member(&JobSpec::running_timeout_ms),
     .metavar = "TIME",
     .help = "Fail the job if it runs longer than this (default: never)",
     .group = k_life_cycle_group,
     .minimum = 0,
     .maximum = INT32_MAX,
     .duration = true,
     .aliases = {"--active-deadline-seconds"}},
    {.key = "ttlAfterFinished",
     .flags = "--ttl-after-finished",
     .member = member(&JobSpec::ttl_after_finished_ms),
     .metavar = "TIME",
     .help = "Delete the job this long after it ends (default: never)",
     .group = k_life_cycle_group,
     .minimum = -1,
     .maximum = INT32_MAX,
     .duration = true},
    {.key = "logLimit",
     .flags = "--log-limit",
     .member = member(&JobSpec::log_limit),
     .metavar = "SIZE",
     .help = "Keep at most this much of each instance's log, such as 1Gi; the oldest lines are "
             "dropped first (default: all of it)",
     .group = k_life_cycle_group,
     .form = Form::quantity},
    {.key = "cleanTaskPolicy",
     .flags = "--clean-task-policy",
     .member = member(&JobSpec::clean_task_policy),
     .metavar = "POLICY",
     .help = "What to stop once the workers have succeeded: Running, All or None "
             "(default: Running)",
     .group = k_life_cycle_group,
     .choices = {"Running", "All", "None"}},
    {.key = "minWorkers",
     .flags = "--min-workers",
     .member = member(&JobSpec::min_workers),
     .metavar = "N",
     .help = "Fewest workers that an elastic job can run with, also after 'dtrain scale'",
     .group = k_life_cycle_group,
     .minimum = 0,
     .maximum = k_max_workers},
    {.key = "maxWorkers",
     .flags = "--max-workers",
     .member = member(&JobSpec::max_workers),
     .metavar = "N",
     .help = "Most workers that 'dtrain scale' may set",
     .group = k_life_cycle_group,
     .minimum = 0,
     .maximum = k_max_workers},
    {.key = "labels",
     .flags = "-l,--label",
     .member = member(&JobSpec::labels),
     .metavar = "KEY=VALUE",
     .help = "Label of the job, for --selector; may be repeated",
     .group = k_life_cycle_group,
     .form = Form::pair},
};

} // namespace

std::span<const JobField> life_cycle_fields() { return k_life_cycle_fields; }

} // namespace dtrain
