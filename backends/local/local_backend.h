// Jobs on this machine.
#pragma once

#include "backends/supervised/supervised_backend.h"

#include <string>
#include <vector>

namespace dtrain {

/// The engine's name; its jobs are stored under it.
inline constexpr std::string_view k_local = "local";

/// The helper (backends/engine.h) that is the supervisor of a job.
inline constexpr std::string_view k_supervise = "supervise";
int supervise_here(const std::vector<std::string>& args);

class LocalBackend : public SupervisedBackend {
 public:
  explicit LocalBackend(std::string root = {}, Supervise supervise = run_helper(k_supervise))
      : SupervisedBackend(k_local, std::move(root), std::move(supervise)) {}

  std::vector<CheckResult> check() override;
  int exec(const JobRef& job, const std::string& instance,
           const std::vector<std::string>& command) override;
  void read_files(const JobRef& job, const std::string& instance, const std::string& path,
                  const ByteSink& sink) override;
  std::vector<NodeStatus> nodes() override;
  std::vector<InstanceUsage> usage(const JobRef& job) override;

 private:
  void resolve_paths(JobSpec& job) const override;
  GangSite site(const JobSpec& job) const override;
  Plan render(const JobSpec& job, const Templates& templates, const GangSite& site,
              const std::vector<std::string>& own_gpus) const override;
  void require_startable(const GangPlan& plan, const std::string& path) const override;
  std::vector<Fd> bring_buckets(const JobSpec& job, const SubmitSink& tell) const override;
};

} // namespace dtrain
