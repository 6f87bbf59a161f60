#include "backends/backend.h"
#include "backends/kubernetes/api/kubeconfig.h"
#include "backends/kubernetes/kubernetes_backend.h"
#include "backends/local/local_backend.h"
#include "submit/errors.h"

#include <fmt/format.h>

#include <array>

namespace dtrain {

namespace {

struct Entry {
  std::string_view name;
  std::unique_ptr<Backend> (*make)(const EngineAccess&);
};

constexpr std::array k_backends{
    Entry{"local",
          [](const EngineAccess&) {
            return std::unique_ptr<Backend>(std::make_unique<LocalBackend>());
          }},
    Entry{"kubernetes", kubernetes::make_kubernetes_backend},
};

} // namespace

std::string_view phase_name(Phase phase) {
  constexpr std::array<std::string_view, 5> k_names{"QUEUING", "PENDING", "RUNNING", "SUCCEEDED",
                                                    "FAILED"};
  return k_names.at(static_cast<std::size_t>(phase));
}

std::vector<std::string> Backend::names(const ListQuery& query) {
  std::vector<std::string> names;
  std::vector<JobSummary> jobs = list(query);
  names.reserve(jobs.size());
  for (auto& job : jobs) {
    names.push_back(std::move(job.name));
  }
  return names;
}

void Backend::refuse(std::string_view what) const {
  throw UsageError(fmt::format("the {} backend cannot {}{}", name(), what,
                               name() == "local" ? "; --backend=kubernetes can" : ""));
}

std::vector<std::string> Backend::settle(JobSpec&) { return {}; }
std::vector<Plan::Document> Backend::try_plan(const Plan&) {
  refuse("check a plan on a server (--dry-run=server)");
}
void Backend::suspend(const JobRef&) { refuse("suspend jobs"); }
void Backend::resume(const JobRef&) { refuse("resume jobs"); }
void Backend::scale(const JobRef&, int) { refuse("scale jobs"); }
std::vector<NodeStatus> Backend::nodes() { refuse("show its nodes"); }
JobSpec Backend::spec(const JobRef&) { refuse("clone jobs"); }
int Backend::exec(const JobRef&, const std::string&, const std::vector<std::string>&) {
  refuse("run commands beside a job");
}
std::vector<InstanceUsage> Backend::usage(const JobRef&) { refuse("show what a job uses"); }

std::vector<std::string> backend_names() {
  std::vector<std::string> names;
  names.reserve(k_backends.size());
  for (const auto& entry : k_backends) {
    names.emplace_back(entry.name);
  }
  return names;
}

std::vector<std::string> context_names(const EngineAccess& access) {
  return kubernetes::context_names({access.kubeconfig, access.context});
}

std::unique_ptr<Backend> make_backend(std::string_view name, const EngineAccess& access) {
  for (const auto& entry : k_backends) {
    if (entry.name == name) {
      return entry.make(access);
    }
  }
  throw UsageError(fmt::format("no backend {}: this dtrain has {}", printable(name),
                               fmt::join(backend_names(), ", ")));
}

} // namespace dtrain
