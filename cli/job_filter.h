// Which jobs a command means: by name, by label and by status.
#pragma once

#include "backends/job_status.h"
#include "cli/target.h"
#include "submit/options/option_table.h"

#include <string>
#include <string_view>
#include <vector>

namespace dtrain {

/// --selector: "team=a", "team!=a", "team" (it has the label), or several with commas between.
Option selector_option(std::vector<std::string>& selectors);

/// --status: "RUNNING", in any case, or several with commas between.
Option status_option(std::vector<std::string>& statuses);

/// --type: sets what `list` shows of such jobs, "TFJOB".
Option type_option(std::string& trainer);

/// Keeps the jobs that match every selector, one of the statuses (none: all), and the trainer
/// (empty: any). Throws UsageError for an invalid selector or status.
void filter_jobs(std::vector<JobSummary>& jobs, const std::vector<std::string>& selectors,
                 const std::vector<std::string>& statuses, std::string_view trainer = {});

/// `names`, or those of the jobs with these labels. Throws UsageError where both are given.
std::vector<std::string> names_of(const Target& target, const std::vector<std::string>& names,
                                  const std::vector<std::string>& selectors);

} // namespace dtrain
