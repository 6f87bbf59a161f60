// The seam between jobs and engines. A backend is one folder that implements this interface and
// declares in a table what it takes and what it cannot do (engine.h), one folder of templates, and
// one line in registry.cpp; the conformance suite decides when it is done.
//
// plan() only reads and asks, and changes nothing. All side effects are in the other calls, each of
// which either succeeds completely or throws and leaves nothing behind.
#pragma once

#include "backends/job_output.h"
#include "backends/job_status.h"
#include "backends/plan.h"
#include "submit/errors.h"
#include "submit/job_spec.h"
#include "submit/template/templates.h"

#include <cstddef>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dtrain {

struct ListQuery {
  std::string namespace_name; ///< Empty: all.
};

/// Return false to stop.
using StatusSink = std::function<bool(const JobStatus&)>;

/// A change in one of the watched jobs.
struct JobNews {
  std::size_t which = 0; ///< Index in the names.
  JobStatus status = {};
  std::exception_ptr error = {}; ///< Set: it is watched no longer; NotFound where it was deleted.
};

/// Return false to watch that job no longer.
using NewsSink = std::function<bool(const JobNews&)>;

/// Other jobs have taken what the plan names since it was made: a new plan can be submitted.
/// Nothing of the job is left.
struct StalePlan : EngineError {
  using EngineError::EngineError;
};

class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string_view name() const = 0;

  /// The namespace of jobs that name none: the kubeconfig context's, or "default".
  virtual std::string default_namespace() { return "default"; }

  /// The plan of a resolved job, which --dry-run prints and submit() carries out: Plan::job
  /// includes what the job left for the engine to choose, and each choice is a line of the notices.
  /// Creates nothing. Throws UsageError naming the flag of what cannot be read, or that the engine
  /// cannot give.
  virtual Plan plan(JobSpec job, const Templates& templates) = 0;

  /// Told, before plan(), of a resolved job that submit() is likely to be given: what takes long to
  /// start may be started. Nothing is left of it where submit() does not come.
  virtual void expect(const JobSpec& /*job*/) {}

  /// Starts the job, as the plan has it, and returns when the engine has it. `tell` may be empty.
  /// Throws UsageError where the name is in use, StalePlan where another plan would do.
  virtual void submit(const Plan& plan, const SubmitSink& tell) = 0;

  virtual std::vector<JobSummary> list(const ListQuery& query) = 0;

  /// The jobs' names alone, for Tab: list()'s, unless the backend has them for less.
  virtual std::vector<std::string> names(const ListQuery& query);

  virtual JobStatus status(const JobRef& job) = 0;

  /// Calls `sink` with each job's status now and at every change, until it returns false for that
  /// job or the job has ended; returns when none is left. Throws what keeps it from all of them.
  virtual void watch_all(const std::string& namespace_name, const std::vector<std::string>& names,
                         const NewsSink& sink) = 0;

  /// The same for one job; throws the error for which it can no longer be watched.
  void watch(const JobRef& job, const StatusSink& sink);

  /// Lines in time order across instances, until all are given (or, following, the job has ended).
  virtual void logs(const JobRef& job, const LogQuery& query, const LogSink& sink) = 0;

  /// Ends every process and forgets the job. Throws NotFound if there is none.
  virtual void remove(const JobRef& job) = 0;

  virtual std::vector<CheckResult> check() = 0;

  /// The events that the engine recorded about the job, oldest first; empty if the engine keeps
  /// none.
  virtual std::vector<JobEvent> events(const JobRef& /*job*/) { return {}; }

  /// Data of one namespace, or of all if it is empty, by namespace and name. Empty if the engine
  /// has no named data.
  virtual std::vector<Claim> claims(const std::string& /*namespace_name*/) { return {}; }

  /// If the job's TensorBoard runs in a network that this machine cannot reach: opens `port` (0:
  /// any free one) of 127.0.0.1 to it, calls `opened` with its URL there, and serves it until
  /// SIGINT or SIGTERM, whose number it returns. Returns nothing if no such port is needed.
  virtual std::optional<int>
  forward_tensorboard(const JobRef& /*job*/, int /*port*/,
                      const std::function<void(const std::string& url)>& /*opened*/) {
    return std::nullopt;
  }

  /// The job as it was submitted, for `clone`.
  virtual JobSpec spec(const JobRef& job) = 0;

  // Optional operations. An engine's table lists those that it cannot do (Engine::cannot), and
  // nobody calls them; an engine must implement the others.

  /// The plan as the engine would store it, by its own validation; nothing is stored.
  virtual std::vector<Plan::Document> try_plan(const Plan& plan);

  /// Ends the ranks, with the grace period, and keeps the job as SUSPENDED; resume starts them
  /// again. UsageError for a job that has ended; false where the job is as it should be already.
  virtual bool suspend(const JobRef& job);
  virtual bool resume(const JobRef& job);

  /// Changes the number of workers while the job runs: the others run on.
  virtual void scale(const JobRef& job, int workers);

  virtual std::vector<NodeStatus> nodes();

  /// Runs a command beside an instance, on this terminal; its exit code, 128 + signal for one.
  virtual int exec(const JobRef& job, const std::string& instance,
                   const std::vector<std::string>& command);

  /// Sends a tar archive of a file or folder of an instance, as it is now. `path`: relative to the
  /// folder in which the instance was started, or absolute. Throws NotFound if it does not exist,
  /// and EngineError if it cannot be read completely.
  virtual void read_files(const JobRef& job, const std::string& instance, const std::string& path,
                          const ByteSink& sink);

  /// Usage of running instances.
  virtual std::vector<InstanceUsage> usage(const JobRef& job);

 protected:
  /// For submit().
  [[noreturn]] static void throw_name_in_use(const JobRef& job);
};

} // namespace dtrain
