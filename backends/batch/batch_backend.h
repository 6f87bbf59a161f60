// Jobs of a queue: a batch script in a folder that the nodes share, and the queue's own commands.
//
// A queue keeps a job's state for a few minutes after its end; the rest, every rank's end and
// output, the script writes to the job's folder (record.h). Beside the job there are only the shell
// that starts each rank, and the one that notes when it printed (templates/batch/ranks.sh).
//
// An engine adds its options and their script (render_script()), its declarations (queue_system.h),
// queries and the reading of their answers, and templates/ENGINE/commands: cluster.sh, end.sh,
// exec.sh, suspend.sh, resume.sh and usage.sh.
#pragma once

#include "backends/backend.h"
#include "backends/batch/followed.h"
#include "backends/batch/job_line.h"
#include "backends/batch/login.h"
#include "backends/batch/queued_job.h"
#include "backends/batch/record.h"
#include "backends/batch/script_data.h"
#include "backends/batch/submission.h"

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace dtrain::batch {

class BatchBackend : public Backend {
 public:
  std::string_view name() const override { return login_.system().engine; }
  Plan plan(JobSpec job, const Templates& templates) override;
  void expect(const JobSpec& job) override;
  void submit(const Plan& plan, const SubmitSink& tell) override;
  std::vector<JobSummary> list(const ListQuery& query) override;
  JobStatus status(const JobRef& job) override;
  void watch_all(const std::string& namespace_name, const std::vector<std::string>& names,
                 const NewsSink& sink) override;
  void logs(const JobRef& job, const LogQuery& query, const LogSink& sink) override;
  void remove(const JobRef& job) override;
  bool suspend(const JobRef& job) override;
  bool resume(const JobRef& job) override;
  JobSpec spec(const JobRef& job) override;
  int exec(const JobRef& job, const std::string& instance,
           const std::vector<std::string>& command) override;
  void read_files(const JobRef& job, const std::string& instance, const std::string& path,
                  const ByteSink& sink) override;
  std::vector<InstanceUsage> usage(const JobRef& job) override;
  std::vector<JobEvent> events(const JobRef& job) override;

 protected:
  explicit BatchBackend(Login login) : login_(std::move(login)) {}

  const Login& login() const { return login_; }

  /// One of the scripts in templates/ENGINE/commands or templates/batch/commands.
  std::string engine_script(std::string_view name) const;
  static std::string batch_script(std::string_view name);

  /// The batch script of a job. Throws UsageError if the job asks for what the queue cannot give.
  virtual std::string render_script(const JobSpec& job, const Templates& templates,
                                    const LoginFacts& login) const = 0;

  /// The queue's own options of a job, as far as backends/batch has to know them.
  virtual QueueOptions queue_options(const JobSpec& job) const = 0;

  /// The cluster that the queue's commands ask from here; empty: not known.
  virtual std::string cluster_here() const = 0;

  /// "--partition=nosuch (sinfo lists them)": which of a script's options an error of the queue's
  /// is about; empty: not known.
  virtual std::string refused_options(const std::string& script, std::string_view error) const = 0;

  /// Asks for the records of a job, and the queue. Lines of the answer: the job's folder; the
  /// records, with "cluster NAME" of the cluster that was asked; an empty line; the queue's output,
  /// for read_jobs(), and "? WHY" if its accounting did not answer. If the user has no such folder:
  /// "USER ID" of another user's job by that name, or nothing.
  virtual std::string ask_job(const JobRef& job) const = 0;

  /// The same for all jobs, without the folder.
  virtual std::string ask_all() const = 0;

  virtual std::vector<QueuedJob> read_jobs(std::string_view said) const = 0;

 private:
  LoginFacts login_facts(const JobSpec& job) const;
  Found find(const JobRef& job) const;
  JobStatus whole_status(const Found& found) const; ///< With the last lines of what failed.
  std::string read_records_of(const Found& found) const;
  Followed follow(const JobRef& job) const;
  bool hold(const JobRef& job, bool held);
  void require_here(const JobRecord& record) const;

  Login login_;
  bool has_answered_ = false;             ///< The queue has, since this was made.
  std::unique_ptr<Subprocess> submitter_; ///< Prepared for the job that is expected; null: none is.
};

} // namespace dtrain::batch
