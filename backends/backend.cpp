#include "backends/backend.h"

#include "submit/errors.h"

#include <fmt/format.h>

namespace dtrain {

void Backend::watch(const JobRef& job, const StatusSink& sink) {
  watch_all(job.namespace_name, {job.name}, [&](const JobNews& news) {
    if (news.error) {
      std::rethrow_exception(news.error);
    }
    return sink(news.status);
  });
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

void Backend::throw_name_in_use(const JobRef& job) {
  throw UsageError(fmt::format("job {0}/{1} exists already: choose another --name, or first run "
                               "dtrain delete -n {0} {1}",
                               job.namespace_name, job.name));
}

void Backend::refuse(std::string_view what) const {
  throw UsageError(fmt::format("the {} backend cannot {}", name(), what));
}

std::vector<std::string> Backend::settle(JobSpec&) { return {}; }
std::vector<Plan::Document> Backend::try_plan(const Plan&) {
  refuse("check a plan on a server (--dry-run=server)");
}
bool Backend::suspend(const JobRef&) { refuse("suspend jobs"); }
bool Backend::resume(const JobRef&) { refuse("resume jobs"); }
void Backend::scale(const JobRef&, int) { refuse("scale jobs"); }
std::vector<NodeStatus> Backend::nodes() { refuse("show its nodes"); }
JobSpec Backend::spec(const JobRef&) { refuse("clone jobs"); }
int Backend::exec(const JobRef&, const std::string&, const std::vector<std::string>&) {
  refuse("run commands beside a job");
}
void Backend::read_files(const JobRef&, const std::string&, const std::string&, const ByteSink&) {
  refuse("copy a job's files");
}
std::vector<InstanceUsage> Backend::usage(const JobRef&) { refuse("show what a job uses"); }

} // namespace dtrain
