#include "backends/kubernetes/status/watch_jobs.h"

#include "backends/kubernetes/status/read_job.h"
#include "backends/kubernetes/status/watched_jobs.h"
#include "backends/kubernetes/submission/change_job.h"
#include "submit/errors.h"

#include <fmt/format.h>

#include <exception>
#include <map>
#include <utility>

namespace dtrain::kubernetes {
namespace {

constexpr std::chrono::milliseconds k_longest_pause{1000};

/// The parts of the status whose changes matter to its readers.
std::string fingerprint(const JobStatus& status) {
  std::string text =
      fmt::format("{} {} {}", phase_name(status.phase), status.restarts, status.reason);
  for (const InstanceStatus& instance : status.instances) {
    text += fmt::format("\n{} {} {}", phase_name(instance.phase), instance.node, instance.started);
  }
  return text;
}

/// False where there is no more to tell of it.
bool tell(ApiClient& api, WatchedJobs& watched, std::size_t which, std::string& last,
          const NewsSink& sink) {
  JobNews news{.which = which};
  try {
    watched.job(which);
    const JobObjects objects = watched.objects(which);
    news.status = status_of(objects);
    const bool is_over = is_final(news.status.phase);
    std::string now = fingerprint(news.status);
    if (now != last) {
      add_last_lines(api, objects, news.status);
    }
    if (is_over) {
      end_left_over(api, objects);
    }
    return (std::exchange(last, now) == now || sink(news)) && !is_over;
  } catch (const Error&) {
    news.error = std::current_exception();
  }
  sink(news);
  return false;
}

} // namespace

void watch_jobs(ApiClient& api, const std::string& namespace_name,
                const std::vector<std::string>& names, const NewsSink& sink) {
  WatchedJobs watched(api, namespace_name, names);
  std::map<std::size_t, std::string> last; // Of jobs that are still watched.
  for (std::size_t i = 0; i < names.size(); ++i) {
    last[i];
  }
  while (true) {
    if (watched.take_changed()) {
      for (auto it = last.begin(); it != last.end();) {
        it = tell(api, watched, it->first, it->second, sink) ? std::next(it) : last.erase(it);
      }
      if (last.empty()) {
        return;
      }
    }
    watched.run(k_longest_pause);
  }
}

} // namespace dtrain::kubernetes
