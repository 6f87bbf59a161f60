// Jobs that no engine looks after but a supervisor of ours, detached from the terminal; its record
// is in a folder (job_store.h).
//
// What an engine on top of it adds is where ranks run: a Channel for its supervisor (supervise.h),
// what its hosts have, and how a plan is made of that.
#pragma once

#include "backends/backend.h"
#include "backends/supervised/gang/gang_plan.h"
#include "backends/supervised/gang/plan_text.h"
#include "backends/supervised/store/job_store.h"
#include "backends/supervised/store/job_view.h"
#include "backends/support/os/fd.h"

#include <functional>
#include <string>
#include <vector>

namespace dtrain {

class SupervisedBackend : public Backend {
 public:
  /// Becomes the supervisor, in a new process, and does not return.
  using Supervise = std::function<void(const std::vector<std::string>& args)>;

  SupervisedBackend(const SupervisedBackend&) = delete;
  SupervisedBackend& operator=(const SupervisedBackend&) = delete;

  std::string_view name() const override { return name_; }
  Plan plan(JobSpec job, const Templates& templates) override;
  void submit(const Plan& plan, const SubmitSink& tell) override;
  std::vector<JobSummary> list(const ListQuery& query) override;
  std::vector<std::string> names(const ListQuery& query) override;
  JobStatus status(const JobRef& job) override;
  void watch_all(const std::string& namespace_name, const std::vector<std::string>& names,
                 const NewsSink& sink) override;
  void logs(const JobRef& job, const LogQuery& query, const LogSink& sink) override;
  void remove(const JobRef& job) override;
  bool suspend(const JobRef& job) override;
  bool resume(const JobRef& job) override;
  void scale(const JobRef& job, int workers) override;
  JobSpec spec(const JobRef& job) override;

 protected:
  /// `name`: the engine's; its jobs are kept under it. `root`: where jobs are kept; empty:
  /// state_folder().
  SupervisedBackend(std::string_view name, std::string root, Supervise supervise);

  /// Makes those paths of the job absolute that count from where `submit` was called.
  virtual void resolve_paths(JobSpec& job) const;
  static std::string absolute_path(const std::string& path);

  /// Facts for a job's first plan from this machine. Throws UsageError naming the flag of what
  /// cannot be read.
  virtual GangSite site(const JobSpec& job) const;

  /// `own_gpus`: devices that the job has already, which it gets before others.
  virtual Plan render(const JobSpec& job, const Templates& templates, const GangSite& site,
                      const std::vector<std::string>& own_gpus) const = 0;

  /// Throws UsageError where the plan's folder, data or program is not there. `path`: the PATH that
  /// the ranks inherit. Nothing is looked for where the channel asks its hosts.
  virtual void require_startable(const GangPlan& /*plan*/, const std::string& /*path*/) const {}

  /// Brings the job's own files (its code) to the job's future folder, from which ranks use them or
  /// get them sent. Returns what was brought, for people; empty: nothing.
  virtual std::string stock(const Plan& plan, const JobFolder& staged,
                            const SubmitSink& tell) const;

  /// Copies the buckets of the job's data to where the plan mounts them from. They do not change
  /// while the returned descriptors are open.
  virtual std::vector<Fd> bring_buckets(const JobSpec& /*job*/, const SubmitSink& /*tell*/) const {
    return {};
  }

  /// Removes what a deleted job left elsewhere. Throws EngineError naming what could not be
  /// removed.
  virtual void remove_far(const GangPlan& /*plan*/, const std::string& /*uid*/) const {}

  const JobStore& store() const { return store_; }

  /// Where the job's code will be.
  std::string code_dir(const JobRef& job) const;

  /// Waits a moment for a job that is being started. Throws EngineError where the instance does not
  /// run, or out of this machine's reach.
  InstanceStatus running_instance(const JobRef& job, const std::string& instance) const;

  /// The plan that the job's supervisor carries out. Throws EngineError for a job of another
  /// machine.
  GangPlan gang_plan(const JobRef& job) const;

  /// Whether jobs can be kept, and the bundled trainer run, for check().
  CheckResult check_state() const;
  static CheckResult check_trainer();

 private:
  /// A supervisor that has answered: k_taken … of supervise.h, or an error's text.
  struct Starting {
    std::string answer;
    Fd line;
    void confirm() const; ///< Confirms that the answer was received: an accepted job starts.
  };

  JobFolder open(const JobRef& job) const;
  JobRecord record_of(const JobFolder& folder, const JobRef& job) const;
  JobRecord record_here(const JobFolder& folder, const JobRef& job) const;
  void forget_expired(const JobRef& job) const;
  Starting start_supervisor(const JobRef& job, const std::string& folder) const;
  Plan render_again(const JobFolder& folder, const JobSpec& job, bool keep_devices) const;

  std::string_view name_;
  JobStore store_;
  JobViewer viewer_;
  Supervise supervise_;
};

/// `dtrain COMMAND ARGS…`, one of the engine's helpers (backends/engine.h).
SupervisedBackend::Supervise run_helper(std::string_view command);

} // namespace dtrain
