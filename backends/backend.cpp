#include "backends/backend.h"

#include "submit/errors.h"

#include <fmt/format.h>

#include <stdexcept>

namespace dtrain {

namespace {

/// For a function that the engine lacks, although its table does not say so.
[[noreturn]] void missing(std::string_view function) {
  throw std::logic_error(
      fmt::format("the backend has no {}(), and its table does not say so", function));
}

} // namespace

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

std::vector<Plan::Document> Backend::try_plan(const Plan&) { missing("try_plan"); }
bool Backend::suspend(const JobRef&) { missing("suspend"); }
bool Backend::resume(const JobRef&) { missing("resume"); }
void Backend::scale(const JobRef&, int) { missing("scale"); }
std::vector<NodeStatus> Backend::nodes() { missing("nodes"); }
int Backend::exec(const JobRef&, const std::string&, const std::vector<std::string>&) {
  missing("exec");
}
void Backend::read_files(const JobRef&, const std::string&, const std::string&, const ByteSink&) {
  missing("read_files");
}
std::vector<InstanceUsage> Backend::usage(const JobRef&) { missing("usage"); }

} // namespace dtrain
