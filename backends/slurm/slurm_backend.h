// Jobs of Slurm: its options and the batch script made of them (templates/slurm/job.sbatch), and
// how squeue, sacct and sinfo are asked. All else is any queue's (backends/batch).
#pragma once

#include "backends/batch/batch_backend.h"

#include <string>
#include <string_view>
#include <vector>

namespace dtrain::slurm {

class SlurmBackend : public batch::BatchBackend {
 public:
  /// `login_host`: as ssh takes it; empty: this machine.
  explicit SlurmBackend(std::string login_host);

  std::vector<CheckResult> check() override;
  std::vector<Plan::Document> try_plan(const Plan& plan) override;
  std::vector<NodeStatus> nodes() override;

 protected:
  std::string render_script(const JobSpec& job, const Templates& templates,
                            const batch::LoginFacts& login) const override;
  batch::QueueOptions queue_options(const JobSpec& job) const override;
  std::string cluster_here() const override;
  std::string refused_options(const std::string& script, std::string_view error) const override;
  std::string ask_job(const JobRef& job) const override;
  std::string ask_all() const override;
  std::vector<batch::QueuedJob> read_jobs(std::string_view said) const override;

 private:
  std::string asking_script(std::string_view name) const;
};

} // namespace dtrain::slurm
