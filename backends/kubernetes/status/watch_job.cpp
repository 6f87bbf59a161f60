#include "backends/kubernetes/status/watch_job.h"

#include "backends/kubernetes/status/read_job.h"
#include "backends/kubernetes/status/watched_job.h"
#include "backends/kubernetes/submission/change_job.h"
#include "submit/errors.h"

#include <fmt/format.h>

namespace dtrain::kubernetes {
namespace {

constexpr std::chrono::milliseconds k_longest_pause{1000};

/// What a reader of the status would see change.
std::string fingerprint(const JobStatus& status) {
  std::string text =
      fmt::format("{} {} {}", phase_name(status.phase), status.restarts, status.reason);
  for (const InstanceStatus& instance : status.instances) {
    text += fmt::format("\n{} {} {}", phase_name(instance.phase), instance.node, instance.started);
  }
  return text;
}

} // namespace

void watch_job(ApiClient& api, const JobRef& ref, const StatusSink& sink) {
  WatchedJob watched(api, ref);
  std::string last;
  for (;;) {
    if (watched.take_changed()) {
      if (watched.job() == nullptr) {
        throw NotFound(fmt::format("job {} was deleted", ref.name));
      }
      const JobObjects objects = watched.objects();
      JobStatus status = status_of(objects);
      if (std::string now = fingerprint(status); now != last) {
        last = now;
        add_last_lines(api, objects, status);
        if (!sink(status)) {
          return;
        }
      }
      if (is_final(status.phase)) {
        end_left_over(api, objects);
        return;
      }
    }
    watched.run(k_longest_pause);
  }
}

} // namespace dtrain::kubernetes
