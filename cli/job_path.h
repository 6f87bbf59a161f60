// JOB:PATH, a file or folder of a job's.
#pragma once

#include <string>

namespace dtrain {

struct JobPath {
  std::string job;
  std::string instance; ///< In JOB/INSTANCE:PATH; else empty.
  std::string path;     ///< Relative to the folder in which the instance was started, or absolute.

  /// The name of its copy in another folder: the path's last component, or, if it has none, the
  /// job's name.
  std::string name() const;
};

/// Also reads TYPE/JOB, as printed by -o name. Throws UsageError for anything else.
JobPath read_job_path(const std::string& text);

/// False if read_job_path() cannot read it as a path of a job.
bool is_job_path(const std::string& text);

} // namespace dtrain
