// Every field of JobSpec, once: its flag, its key in a job file, its limits and its help. The
// flags of `dtrain submit`, the job file's reader and writer, the man page and Tab completion are
// made from this table.
//
// `submit -f job.yaml --workers=5` layers them, least first:
//
//   parse_options(table, args, ParsePass::all);              // to learn --file, or to be done
//   job = JobSpec{};                                         // profile's values may go here
//   parse_options(table, args, ParsePass::environment);
//   job = read_job_yaml(text, file, std::move(job));
//   parse_options(table, args, ParsePass::flags);            // --env is appended
#pragma once

#include "submit/job_spec.h"
#include "submit/option_table.h"

#include <string>
#include <variant>
#include <vector>

namespace dtrain {

using JobMember = std::variant<std::string JobSpec::*, int JobSpec::*, bool JobSpec::*,
                               std::vector<std::string> JobSpec::*>;

struct JobField {
  const char* key;   ///< In a job file: "maxRestarts".
  const char* flags; ///< "--max-restarts"; "": the field has no flag (the command, after --).
  JobMember member;
  const char* metavar;
  const char* help;
  const char* group;
  std::int64_t minimum = INT64_MIN;
  std::int64_t maximum = INT64_MAX;
  bool duration = false;
  Complete complete = Complete::nothing;
  const char* env = "";
};

/// The heading of what only an engine of containers can do.
inline constexpr const char* k_container_group = "Kubernetes";

/// In the order in which help and job files show them.
const std::vector<JobField>& job_fields();

/// True where `job` has the field as a JobSpec that nobody touched has it.
bool is_default(const JobSpec& job, const JobField& field);

/// True where a job file has the field: what only containers have, only where it was set.
bool is_in_job_file(const JobSpec& job, const JobField& field);

/// The flags of `dtrain submit` that set `job`. `backends` are the choices of --backend; empty:
/// anything.
std::vector<Option> job_options(JobSpec& job, const std::vector<std::string>& backends = {});

} // namespace dtrain
