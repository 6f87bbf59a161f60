// One job's folder, whose contents job_store.h describes.
#pragma once

#include "backends/supervised/store/job_record.h"
#include "backends/support/os/fd.h"

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace dtrain {

inline constexpr const char* k_plan_file = "plan.yaml";
inline constexpr const char* k_status_file = "status.json";
inline constexpr const char* k_logs_folder = "logs";
inline constexpr const char* k_spec_file = "job.yaml";
inline constexpr const char* k_secrets_file = "secrets"; ///< KEY=VALUE, a NUL after each.
inline constexpr const char* k_hostfile = "hostfile";
inline constexpr const char* k_supervisor_log = "supervisor.log";

/// "logs/worker-0.0.log"
std::string log_file_name(std::string_view instance, int restart);

/// One job's folder, kept open: it stays the same job even if the folder is moved.
class JobFolder {
 public:
  JobFolder(Fd folder, std::string path) : folder_(std::move(folder)), path_(std::move(path)) {}

  int fd() const { return folder_.get(); }
  const std::string& path() const { return path_; }
  void set_path(std::string path) { path_ = std::move(path); }

  std::optional<std::string> read(const std::string& name) const;
  void write(const std::string& name, std::string_view text) const;

  /// Empty where the file is absent or damaged.
  std::optional<JobRecord> record() const;
  void set_record(const JobRecord& record) const;

  /// Sets aside room for the last record, so that set_last_record() works on a full disk as well.
  void reserve_last_record(std::size_t bytes) const;
  void set_last_record(const JobRecord& record) const;

  /// A log file to append to: an instance that was suspended, or scaled away, has one. Throws
  /// Error.
  Fd create_log(std::string_view instance, int restart) const;

 private:
  Fd folder_;
  std::string path_;
};

/// During its lifetime nobody else can delete the job or take it over. Throws Error.
class FolderLock {
 public:
  explicit FolderLock(const JobFolder& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int fd_;
};

} // namespace dtrain
