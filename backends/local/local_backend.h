// Jobs on this machine: a supervisor of ours detached from the terminal, its record in a folder.
#pragma once

#include "backends/backend.h"
#include "backends/local/local_plan.h"
#include "backends/supervised/job_store.h"
#include "backends/supervised/job_view.h"

#include <functional>
#include <string>
#include <vector>

namespace dtrain {

/// Of the engine; its jobs are kept under it.
inline constexpr std::string_view k_local = "local";

/// Of a job's folder: what --sync-mode brought.
inline constexpr const char* k_code_folder = "code";

class LocalBackend : public Backend {
 public:
  /// Becomes the supervisor, in a new process, and does not return: by default `dtrain supervise`.
  using Supervise = std::function<void(const std::vector<std::string>& args)>;

  /// `root`: where jobs are kept; empty: JobStore::default_root().
  explicit LocalBackend(std::string root = {}, Supervise supervise = {});

  LocalBackend(const LocalBackend&) = delete;
  LocalBackend& operator=(const LocalBackend&) = delete;

  std::string_view name() const override { return k_local; }
  Surroundings survey(const JobSpec& job) const override;
  Plan render(const JobSpec& job, const Templates& templates,
              const Surroundings& here) const override;
  void submit(const Plan& plan, const SubmitSink& tell) override;
  std::vector<JobSummary> list(const ListQuery& query) override;
  std::vector<std::string> names(const ListQuery& query) override;
  JobStatus status(const JobRef& job) override;
  void watch(const JobRef& job, const StatusSink& sink) override;
  void logs(const JobRef& job, const LogQuery& query, const LogSink& sink) override;
  void remove(const JobRef& job) override;
  std::vector<std::string> settle(JobSpec& job) override;
  bool suspend(const JobRef& job) override;
  bool resume(const JobRef& job) override;
  void scale(const JobRef& job, int workers) override;
  std::vector<CheckResult> check() override;
  JobSpec spec(const JobRef& job) override;
  int exec(const JobRef& job, const std::string& instance,
           const std::vector<std::string>& command) override;
  std::vector<NodeStatus> nodes() override;
  std::vector<InstanceUsage> usage(const JobRef& job) override;

 private:
  JobFolder open(const JobRef& job) const;
  void forget_expired(const JobRef& job) const;
  std::string start(const Plan& plan, const SubmitSink& tell);
  std::string start_supervisor(const JobRef& job, const std::string& folder) const;
  void add_gpus(const JobSpec& job, const std::vector<std::string>& own, Surroundings& here) const;
  std::string code_dir(const JobRef& job) const;
  JobRecord record_here(const JobFolder& folder, const JobRef& job) const;
  Plan render_again(const JobFolder& folder, const JobSpec& job, bool keep_gpus) const;

  JobStore store_;
  JobViewer viewer_;
  Supervise supervise_;
};

/// "default/mnist"
std::string text_of(const JobRef& job);

} // namespace dtrain
