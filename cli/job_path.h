// JOB:PATH, a file or folder of a job's.
#pragma once

#include <string>

namespace dtrain {

struct JobPath {
  std::string job;
  std::string instance; ///< Of JOB/INSTANCE:PATH; else empty.
  std::string path;     ///< From the folder that the instance was started in, or absolute.

  /// What it is called in another folder: the path's last name, or, where it has none, the job's.
  std::string name() const;
};

/// Also of TYPE/JOB, as -o name prints it. Throws UsageError for anything else.
JobPath read_job_path(const std::string& text);

/// False of what read_job_path() can be no path of a job's for.
bool is_job_path(const std::string& text);

} // namespace dtrain
