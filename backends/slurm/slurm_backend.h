// Jobs of Slurm: a batch script of ours (templates/slurm/job.sbatch), and Slurm's own commands.
//
// Slurm holds a job's state for a few minutes after its end; what it does not keep, every rank's
// end and what it printed, the script leaves in the job's folder, which the nodes share
// (record.h). Nothing of ours runs beside the job.
#pragma once

#include "backends/backend.h"
#include "backends/slurm/followed.h"
#include "backends/slurm/login.h"
#include "backends/slurm/record.h"
#include "backends/slurm/submission.h"

#include <memory>
#include <string>
#include <vector>

namespace dtrain::slurm {

inline constexpr std::string_view k_slurm = "slurm";

class SlurmBackend : public Backend {
 public:
  explicit SlurmBackend(Login login) : login_(std::move(login)) {}

  std::string_view name() const override { return k_slurm; }
  Surroundings survey(const JobSpec& job) const override;
  Plan render(const JobSpec& job, const Templates& templates,
              const Surroundings& here) const override;
  void expect(const JobSpec& job) override;
  void submit(const Plan& plan, const SubmitSink& tell) override;
  std::vector<JobSummary> list(const ListQuery& query) override;
  JobStatus status(const JobRef& job) override;
  void watch_all(const std::string& namespace_name, const std::vector<std::string>& names,
                 const NewsSink& sink) override;
  void logs(const JobRef& job, const LogQuery& query, const LogSink& sink) override;
  void remove(const JobRef& job) override;
  std::vector<CheckResult> check() override;
  std::vector<Plan::Document> try_plan(const Plan& plan) override;
  bool suspend(const JobRef& job) override;
  bool resume(const JobRef& job) override;
  std::vector<NodeStatus> nodes() override;
  JobSpec spec(const JobRef& job) override;
  int exec(const JobRef& job, const std::string& instance,
           const std::vector<std::string>& command) override;
  void scale(const JobRef& job, int workers) override;
  std::vector<InstanceUsage> usage(const JobRef& job) override;
  std::vector<JobEvent> events(const JobRef& job) override;

 private:
  Found find(const JobRef& job) const;
  JobStatus whole_status(const Found& found) const; ///< With what failed said last.
  std::string read_records_of(const Found& found) const;
  Followed follow(const JobRef& job) const;
  bool hold(const JobRef& job, bool held);

  Login login_;
  bool has_answered_ = false;          ///< Slurm has, since this was made.
  std::unique_ptr<Subprocess> sbatch_; ///< Of the job that is expected; null: none is.
};

} // namespace dtrain::slurm
