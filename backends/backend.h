// The seam between jobs and engines. A backend is one folder that implements this interface and
// says in a table what it takes and what it cannot do (engine.h), one folder of templates, and one
// line in registry.cpp; the conformance suite says when it is done.
//
// plan() reads and asks, and changes nothing. Every side effect is in the other calls, and each
// either happens whole or throws with nothing left behind.
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

/// Of one of the jobs that are watched.
struct JobNews {
  std::size_t which = 0; ///< Of the names.
  JobStatus status = {};
  std::exception_ptr error = {}; ///< Set: it is watched no longer; NotFound where it was deleted.
};

/// Return false to watch that job no longer.
using NewsSink = std::function<bool(const JobNews&)>;

/// Other jobs have taken what the plan names since it was made: a plan that is made now can be
/// submitted. Nothing of the job is left.
struct StalePlan : EngineError {
  using EngineError::EngineError;
};

class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string_view name() const = 0;

  /// Where jobs go for which none is named: the kubeconfig context's, or "default".
  virtual std::string default_namespace() { return "default"; }

  /// What submit() carries out, and --dry-run prints, of a resolved job: Plan::job has what the job
  /// left for the engine to choose, and each choice is a line of the notices. Creates nothing.
  /// Throws UsageError naming the flag of what cannot be read, or that the engine cannot give.
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

  /// The same of one job; throws what it is watched no longer for.
  void watch(const JobRef& job, const StatusSink& sink);

  /// Lines in time order across instances, until all are given (or, following, the job has ended).
  virtual void logs(const JobRef& job, const LogQuery& query, const LogSink& sink) = 0;

  /// Ends every process and forgets the job. NotFound where there is none.
  virtual void remove(const JobRef& job) = 0;

  virtual std::vector<CheckResult> check() = 0;

  /// What the engine wrote down about the job, the oldest first; nothing where it keeps no such
  /// record.
  virtual std::vector<JobEvent> events(const JobRef& /*job*/) { return {}; }

  /// Of one namespace, or of all where it is empty; by namespace and name. Nothing where the engine
  /// has no data by name.
  virtual std::vector<Claim> claims(const std::string& /*namespace_name*/) { return {}; }

  /// Where the job's TensorBoard runs in a network that this machine does not see: opens `port` (0:
  /// any that is free) of 127.0.0.1 to it, gives its URL there to `opened`, and serves it until
  /// SIGINT or SIGTERM, whose number it returns. Nothing where it needs no such port.
  virtual std::optional<int>
  forward_tensorboard(const JobRef& /*job*/, int /*port*/,
                      const std::function<void(const std::string& url)>& /*opened*/) {
    return std::nullopt;
  }

  /// The job as it was submitted, for `clone`.
  virtual JobSpec spec(const JobRef& job) = 0;

  // What not every engine can. Its table says what it cannot (Engine::cannot), and nobody asks for
  // that; an engine whose table does not say it has these.

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

  /// A tar archive of a file or folder of an instance's, as it is now. `path`: from the folder that
  /// the instance was started in, or absolute. NotFound where there is none; EngineError where it
  /// cannot be read whole.
  virtual void read_files(const JobRef& job, const std::string& instance, const std::string& path,
                          const ByteSink& sink);

  /// Of the instances that run.
  virtual std::vector<InstanceUsage> usage(const JobRef& job);

 protected:
  /// For submit().
  [[noreturn]] static void throw_name_in_use(const JobRef& job);
};

} // namespace dtrain
