// The record of jobs that have no engine: a folder a job, readable by a person.
//
//   ROOT/jobs/BACKEND/NAMESPACE/NAME/plan.yaml     what is carried out
//                                    job.yaml      the job as it was submitted, for `clone`
//                                    status.json   job_record.h, replaced at every change
//                                    hostfile, code/, bin/, secrets, environment, template.FILE
//                                                  where the job has them
//                                    logs/INSTANCE.RESTART.log   log_format.h
//                                    supervisor.log   what went wrong in the supervisor itself
//   ROOT/jobs/BACKEND/.NAMESPACE.list              job_index.h, for `list`
//   ROOT/staging/…                                 folders on their way in or out
//
// A backend's jobs are its own: another's may have the same names.
//
// A job appears by one rename out of staging, whole and with its supervisor at work, and goes by
// one rename into staging: at no time is there half a job. What a crash leaves in staging is
// cleared by the next submission.
#pragma once

#include "backends/job_status.h"
#include "backends/supervised/store/job_folder.h"
#include "backends/supervised/store/job_record.h"
#include "backends/support/os/fd.h"

#include <fmt/format.h>

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace dtrain {

/// "default/mnist", for people.
std::string text_of(const JobRef& job);

class JobStore {
 public:
  JobStore(std::string root, std::string_view backend)
      : root_(std::move(root)), jobs_(fmt::format("jobs/{}", backend)) {}

  /// The store that the job of that path, job_path()'s, is in.
  static JobStore of(const std::string& job_path);

  const std::string& root() const { return root_; }
  std::string job_path(const JobRef& job) const;

  /// A new folder in staging with an empty logs/. Clears what crashed submissions left.
  JobFolder stage() const;

  /// Gives a staged folder its name. False where the name is in use.
  bool publish(JobFolder& folder, const JobRef& job) const;

  /// Removes a staged folder.
  void discard(const JobFolder& folder) const;

  std::optional<JobFolder> open(const JobRef& job) const;

  /// False where the name has gone to another job or none since it was opened.
  bool is_current(const JobFolder& folder, const JobRef& job) const;

  /// Takes the job's name away and removes the folder. False where another process did so already.
  bool remove(const JobFolder& folder, const JobRef& job) const;

  /// The heads of all jobs of a namespace (empty: all). A damaged record comes as an empty
  /// optional.
  using Visit = std::function<void(const JobRef&, std::optional<JobRecordHead>)>;
  void for_each(std::string_view namespace_name, const Visit& visit) const;

  /// The same without reading a record: a tenth of the cost. `space` is the namespace's folder.
  using VisitName = std::function<void(int space, const JobRef&)>;
  void for_each_name(std::string_view namespace_name, const VisitName& visit) const;

 private:
  using VisitSpace = std::function<void(const std::string& name, int folder)>;
  void for_each_space(std::string_view namespace_name, const VisitSpace& visit) const;
  std::string read_index(std::string_view space_name) const;
  void write_index(std::string_view space_name, std::string_view text) const;
  Fd open_folder(const std::string& name, bool create) const;

  std::string root_;
  std::string jobs_; ///< Below it.
};

} // namespace dtrain
