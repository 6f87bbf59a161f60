// The seam between jobs and engines. A backend is one folder that implements this interface and
// says in a table what it takes (engine.h), one folder of templates, and one line in registry.cpp;
// the conformance suite says when it is done.
//
// render() is pure. Every side effect is in the other calls, and each either happens whole or
// throws with nothing left behind.
#pragma once

#include "submit/job_spec.h"
#include "submit/template/templates.h"

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dtrain {

/// What would be submitted, byte for byte: --dry-run prints it and submit() carries it out.
struct Plan {
  struct Document {
    std::string name; ///< "job.yaml"
    std::string text;
  };
  JobSpec job;
  Templates templates; ///< What the documents were made from.
  std::vector<Document> documents;
  /// KEY=VALUE of the ranks' environment that no document shows but as ***.
  std::vector<std::string> secret_env;
  std::vector<std::string> notices; ///< One line each, for stderr ("4 GPUs asked, 0 found: …").
};

/// A machine that ranks may be started on.
struct HostSlots {
  std::string name;                           ///< As the engine reaches it: "h1", "me@h1".
  int slots = 0;                              ///< Ranks that it has room for; 0: not said.
  std::vector<std::string> gpus = {};         ///< Those of it that ranks may have; empty: all …
  std::vector<std::string> without_gpus = {}; ///< … but these.

  bool operator==(const HostSlots&) const = default;
};

/// What a plan depends on besides the job: what lies on the machine of who submits it.
struct Surroundings {
  std::string working_dir;                  ///< Where submit was called.
  std::vector<std::string> secret_env;      ///< KEY=VALUE of --env-file and --secret.
  std::vector<std::string> unknown_secrets; ///< Those of --secret that this machine does not keep.
  std::string state_folder = {};            ///< Where jobs keep their files, where they run.
  std::string trainer;                      ///< The bundled trainer's path; empty: not found.
  std::string tensorboard;                  ///< Its program; empty: not found.
  std::vector<std::string> gpus; ///< As CUDA_VISIBLE_DEVICES names them, free ones first.
  std::size_t gpus_in_use = 0;   ///< How many at the end of them other jobs hold.
  /// The folder that shows a share or bucket of --data here, by its URL.
  std::map<std::string, std::string> data_folders;
  std::vector<HostSlots> hosts; ///< That were named for the job, where its engine has no nodes.
  std::string interface;        ///< Of theirs, that ranks are to be reached at; empty: any.
  int host_timeout_ms = 0;      ///< After which a silent one is lost; 0: the engine's own.
};

/// What submit() is at: code is uploaded, data copied. What an engine has no need of is left out.
enum class SubmitStep { check, upload, copy, create };

struct SubmitProgress {
  SubmitStep step = SubmitStep::check;
  bool done = false;
  std::int64_t bytes = 0;
  std::int64_t bytes_total = 0; ///< 0: not known.
  std::string text = {};        ///< "213.0 MB of 500.0 MB"; of a step that is done: what it did.
};

/// One that throws ends the submission, with nothing left behind.
using SubmitSink = std::function<void(const SubmitProgress&)>;

/// Arena's states, and: a job that waits for `dtrain resume`; an instance that was ended for the
/// job's sake, as the others are when one has failed.
enum class Phase { queuing, pending, running, succeeded, failed, suspended, terminated };

std::string_view phase_name(Phase phase); ///< "RUNNING"
constexpr bool is_final(Phase phase) {
  return phase == Phase::succeeded || phase == Phase::failed || phase == Phase::terminated;
}
/// Neither starts nor holds anything by itself.
constexpr bool is_held_back(Phase phase) {
  return phase == Phase::queuing || phase == Phase::suspended;
}

/// Nanoseconds since the Unix epoch; 0 is "not yet".
using Time = std::int64_t;
inline constexpr Time k_second = 1'000'000'000;

/// One rank's process (a Pod, a Slurm task).
struct InstanceStatus {
  std::string name; ///< "worker-0"
  Phase phase = Phase::pending;
  Time started = 0;
  Time ended = 0;
  bool is_chief = false;
  int gpus = 0; ///< Requested.
  std::string node;
  std::int64_t pid = 0;         ///< Where the engine has one; 0: none.
  std::optional<int> exit_code; ///< After it ended by itself.
  std::optional<int> signal;    ///< After a signal ended it.
};

/// Why a job failed: the first rank to fail, not the ones its death took along.
struct FailureCause {
  std::string instance;
  int rank = -1; ///< -1: the job itself, not a rank.
  std::string node;
  std::optional<int> exit_code;
  std::optional<int> signal;
  std::string message;                  ///< One line.
  std::vector<std::string> last_stderr; ///< At most 20 lines.
};

/// The columns of `list`: cheap to get for thousands of jobs.
struct JobSummary {
  std::string name;
  std::string namespace_name;
  std::string trainer; ///< "DTRAINJOB"
  std::string priority;
  Phase phase = Phase::pending;
  Time created = 0;
  Time started = 0;
  Time ended = 0;
  int gpus_requested = 0; ///< All instances together.
  int gpus_allocated = 0;
  std::string node;                ///< Chief's.
  std::vector<std::string> labels; ///< KEY=VALUE
  Time expires = 0;                ///< When the engine forgets it; 0: never.
};

struct JobStatus : JobSummary {
  std::string uid;
  int restarts = 0;
  std::string tensorboard; ///< Its URL; empty: none.
  std::string reason;      ///< Why pending or failed, one line, from the engine.
  Time starts = 0;         ///< When the engine expects to start it; 0: it does not say.
  std::vector<InstanceStatus> instances;
  std::optional<FailureCause> cause;
};

struct JobRef {
  std::string namespace_name;
  std::string name;
};

/// What an engine wrote down about a job's objects.
struct JobEvent {
  std::string source; ///< "pod/mnist-worker-0"
  std::string type;   ///< "Normal", "Warning"
  Time time = 0;      ///< The last time it happened.
  std::string message;
};

struct ListQuery {
  std::string namespace_name; ///< Empty: all.
};

struct LogQuery {
  std::string instance;   ///< Empty: all.
  bool follow = false;    ///< Waits for the job to start and ends with it.
  std::int64_t tail = -1; ///< Last lines of each instance; -1: all.
  Time since = 0;
  bool previous = false;      ///< The run before the last restart.
  std::string container = {}; ///< Of each instance's; empty: the program's.

  /// Told, while following and at each change, why nothing runs yet: an image that cannot be
  /// pulled, no room in the cluster. May be empty.
  std::function<void(const std::string&)> on_wait = {};
};

struct LogLine {
  Time time = 0;
  std::string_view instance; ///< "worker-0"
  bool is_stderr = false;
  bool complete = true;  ///< False: no newline yet, more of the line follows.
  std::string_view text; ///< Without its newline.
};

/// What one instance, with all processes below it, uses.
struct InstanceUsage {
  std::string instance;
  std::string node;
  double cpus = 0;
  std::int64_t memory = 0; ///< Bytes.
  int gpus = 0;
};

/// One that throws ends what is being read.
using ByteSink = std::function<void(std::string_view)>;

/// Return false to stop.
using LogSink = std::function<bool(const LogLine&)>;
using StatusSink = std::function<bool(const JobStatus&)>;

/// Of one of the jobs that are watched.
struct JobNews {
  std::size_t which = 0; ///< Of the names.
  JobStatus status = {};
  std::exception_ptr error = {}; ///< Set: it is watched no longer; NotFound where it was deleted.
};

/// Return false to watch that job no longer.
using NewsSink = std::function<bool(const JobNews&)>;

/// A machine of the engine's.
struct NodeStatus {
  std::string name;
  std::string address;
  std::string role;   ///< "control-plane", or empty.
  std::string status; ///< "Ready", "NotReady", "Ready,SchedulingDisabled"
  int gpus = 0;       ///< That jobs may have.
  int gpus_requested = 0;
  double cpus = 0; ///< 0: the engine does not say, nor of what follows.
  double cpus_used = 0;
  std::int64_t memory = 0; ///< Bytes.
  std::int64_t memory_used = 0;
  std::string unseen = {}; ///< What we may not see of it, and by which right we could; one line.
  int gpus_free() const { return gpus > gpus_requested ? gpus - gpus_requested : 0; }
};

/// One line of `dtrain check`.
struct CheckResult {
  enum class Level { ok, warning, error } level = Level::ok;
  std::string what;  ///< "GPUs"
  std::string found; ///< "none: jobs run on the CPU"
};

class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string_view name() const = 0;

  /// Where jobs go for which none is named: the kubeconfig context's, or "default".
  virtual std::string default_namespace() { return "default"; }

  /// Fills in what the job leaves for the engine to choose, and says each choice in a line. Throws
  /// UsageError where it has nothing to choose from.
  virtual std::vector<std::string> settle(JobSpec& job);

  /// What there is here of what render() asks for. Throws UsageError naming the flag of what cannot
  /// be read.
  virtual Surroundings survey(const JobSpec& job) const = 0;

  /// A function of what it is given: it reads no file and asks nobody.
  virtual Plan render(const JobSpec& job, const Templates& templates,
                      const Surroundings& here) const = 0;

  /// Told, before it is rendered, of a resolved job that submit() is likely to be given: what takes
  /// long to start may be started. Nothing is left of it where submit() does not come.
  virtual void expect(const JobSpec& /*job*/) {}

  /// Starts the job and returns when the engine has it. UsageError where the name is in use. `tell`
  /// may be empty.
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

  // What not every engine can. These throw UsageError where the engine cannot.

  /// The plan as the engine would store it, by its own validation; nothing is stored.
  virtual std::vector<Plan::Document> try_plan(const Plan& plan);

  /// Ends the ranks, with the grace period, and keeps the job as SUSPENDED; resume starts them
  /// again. UsageError for a job that has ended; false where the job is as it should be already.
  virtual bool suspend(const JobRef& job);
  virtual bool resume(const JobRef& job);

  /// Changes the number of workers while the job runs: the others run on.
  virtual void scale(const JobRef& job, int workers);

  virtual std::vector<NodeStatus> nodes();

  /// The job as it was submitted, for `clone`.
  virtual JobSpec spec(const JobRef& job);

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

  /// "the slurm backend cannot suspend jobs".
  [[noreturn]] void refuse(std::string_view what) const;
};

} // namespace dtrain
