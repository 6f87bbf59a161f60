// Jobs on hosts that ssh reaches: they need sshd and the tools of POSIX, and nothing of ours.
//
// A supervisor on this machine looks after the job (supervised/); where it is gone, or this machine
// is, so are the ranks.
#pragma once

#include "backends/engine.h"
#include "backends/supervised/supervised_backend.h"

#include <string>
#include <vector>

namespace dtrain::ssh {

/// The engine's name; its jobs are stored under it.
inline constexpr std::string_view k_ssh = "ssh";

/// The helper (backends/engine.h) that is the supervisor of a job.
inline constexpr std::string_view k_supervise = "supervise-ssh";
int supervise_hosts(const std::vector<std::string>& args);

class SshBackend : public SupervisedBackend {
 public:
  explicit SshBackend(const EngineAccess& access)
      : SupervisedBackend(k_ssh, {}, run_helper(k_supervise)), access_(access) {}

  std::vector<CheckResult> check() override;
  std::vector<NodeStatus> nodes() override;
  std::vector<InstanceUsage> usage(const JobRef& job) override;
  std::optional<int>
  forward_tensorboard(const JobRef& job, int port,
                      const std::function<void(const std::string& url)>& opened) override;
  int exec(const JobRef& job, const std::string& instance,
           const std::vector<std::string>& command) override;
  void read_files(const JobRef& job, const std::string& instance, const std::string& path,
                  const ByteSink& sink) override;

 private:
  GangSite site(const JobSpec& job) const override;
  Plan render(const JobSpec& job, const Templates& templates, const GangSite& site,
              const std::vector<std::string>& own_gpus) const override;
  std::string stock(const Plan& plan, const JobFolder& staged,
                    const SubmitSink& tell) const override;
  void remove_far(const GangPlan& plan, const std::string& uid) const override;
  std::vector<HostSlots> hosts(const std::string& include = "",
                               const std::string& exclude = "") const;

  EngineAccess access_;
};

} // namespace dtrain::ssh
