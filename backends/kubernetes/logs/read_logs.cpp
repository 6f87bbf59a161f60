#include "backends/kubernetes/logs/read_logs.h"

#include "backends/kubernetes/logs/log_merge.h"
#include "backends/kubernetes/logs/pod_log.h"
#include "backends/kubernetes/objects/objects.h"
#include "backends/kubernetes/status/kueue.h"
#include "backends/kubernetes/status/read_job.h"
#include "backends/kubernetes/status/watched_jobs.h"
#include "backends/kubernetes/submission/change_job.h"
#include "submit/errors.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <set>
#include <thread>

namespace dtrain::kubernetes {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;

/// The logs of a job's Pods, opened as they appear.
class LogReader {
 public:
  LogReader(ApiClient& api, const LogQuery& query, const LogSink& sink)
      : api_(api), query_(query), merge_(sink) {}

  /// Opens logs of Pods that have none yet and brings the others up to date.
  void update(const JobObjects& objects) {
    std::vector<const json*> latest = latest_pods(objects);
    std::set<std::string> there;
    for (const ObjectPtr& shared : objects.pods) {
      const json& pod = *shared;
      std::string uid = text_at(pod, "metadata/uid");
      there.insert(uid);
      auto found = logs_.find(uid);
      if (found != logs_.end()) {
        found->second->update(pod);
      } else if (is_wanted(pod, objects, latest)) {
        logs_.emplace(uid, std::make_unique<PodLog>(api_, merge_, pod,
                                                    PodLogQuery{query_.container, query_.follow,
                                                                query_.tail, query_.since}));
      }
    }
    for (auto& [uid, log] : logs_) {
      if (!there.contains(uid)) {
        log->pod_is_gone();
      }
    }
    first_ = false;
  }

  void tend() {
    for (auto& [uid, log] : logs_) {
      log->tend();
    }
  }

  /// False where the sink wants no more.
  bool flush() { return merge_.flush(LogMerge::Clock::now()); }
  bool drain() { return merge_.drain(); }

  bool done() const {
    return std::all_of(logs_.begin(), logs_.end(),
                       [](const auto& entry) { return entry.second->done(); });
  }

  milliseconds next_tend() const {
    milliseconds next = merge_.next_flush(LogMerge::Clock::now());
    for (const auto& [uid, log] : logs_) {
      next = std::min(next, log->next_tend());
    }
    return next;
  }

  std::string lost() const {
    for (const auto& [uid, log] : logs_) {
      if (!log->lost().empty()) {
        return log->lost();
      }
    }
    return {};
  }

 private:
  bool is_wanted(const json& pod, const JobObjects& objects,
                 const std::vector<const json*>& latest) const {
    int index = place_of(objects, pod);
    if (index < 0 || static_cast<std::size_t>(index) >= latest.size() ||
        (!query_.instance.empty() && instance_of(pod) != query_.instance)) {
      return false;
    }
    bool is_latest = latest[static_cast<std::size_t>(index)] == &pod;
    if (query_.previous) {
      return !is_latest && is_second_latest(pod, objects, latest);
    }
    // Following from the start, each later attempt is wanted too, however briefly it was latest.
    return is_latest || !first_;
  }

  static bool is_second_latest(const json& pod, const JobObjects& objects,
                               const std::vector<const json*>& latest) {
    auto created = [](const json& p) { return text_at(p, "metadata/creationTimestamp"); };
    return std::none_of(objects.pods.begin(), objects.pods.end(), [&](const ObjectPtr& other) {
      const int place = place_of(objects, pod);
      return place_of(objects, *other) == place && other.get() != &pod &&
             latest[static_cast<std::size_t>(place)] != other.get() &&
             created(*other) > created(pod);
    });
  }

  ApiClient& api_;
  const LogQuery& query_;
  LogMerge merge_;
  std::map<std::string, std::unique_ptr<PodLog>> logs_; // Keyed by the Pod's uid.
  bool first_ = true;
};

/// All Pods of a job have the same containers.
void check_container(const JobObjects& objects, const LogQuery& query) {
  if (query.container.empty() || objects.pods.empty()) {
    return;
  }
  std::string names;
  for (const char* list : {"spec/containers", "spec/initContainers"}) {
    for (const json& container : member(*objects.pods[0], list)) {
      const std::string name = text_at(container, "name");
      if (name == query.container) {
        return;
      }
      names += (names.empty() ? "" : ", ") + name;
    }
  }
  throw NotFound(
      fmt::format("--container={}: the job's Pods have {}", printable(query.container), names));
}

void check_instance(const JobObjects& objects, const LogQuery& query) {
  check_container(objects, query);
  if (query.instance.empty()) {
    return;
  }
  JobStatus status = status_of(objects);
  std::string names;
  for (const InstanceStatus& instance : status.instances) {
    if (instance.name == query.instance) {
      return;
    }
  }
  throw NotFound(fmt::format("job {} has no instance {}: it has {} to {}", status.name,
                             printable(query.instance), status.instances.front().name,
                             status.instances.back().name));
}

constexpr milliseconds k_longest_wait{1000};

void finish_logs(LogReader& reader) {
  reader.drain();
  if (std::string lost = reader.lost(); !lost.empty()) {
    throw EngineError(lost);
  }
}

} // namespace

void read_logs(ApiClient& api, const JobRef& ref, const LogQuery& query, const LogSink& sink) {
  LogReader reader(api, query, sink);
  if (!query.follow) {
    JobObjects objects = read_objects(api, ref);
    check_instance(objects, query);
    reader.update(objects);
    for (reader.tend(); !reader.done(); reader.tend()) {
      milliseconds wait = std::min(k_longest_wait, reader.next_tend());
      if (!api.http().run_once(wait)) {
        std::this_thread::sleep_for(wait);
      }
      if (!reader.flush()) {
        return;
      }
    }
    finish_logs(reader);
    return;
  }
  WatchedJobs watched(api, ref.namespace_name, {ref.name});
  watched.job(); // NotFound
  check_instance(watched.objects(), query);
  bool is_over = false;
  std::string reason;
  do {
    if (watched.take_changed()) {
      if (watched.is_deleted()) {
        is_over = true; // Deleted: what its Pods have written is given to the end.
      } else {
        JobObjects objects = watched.objects();
        reader.update(objects);
        is_over = is_final(summarize(objects).phase);
        if (is_over) { // Otherwise its Pods, and with them their logs, would not end.
          end_left_over(api, objects);
        }
        if (query.on_wait && (wants_events(objects) || wants_queue(objects))) {
          std::string now = status_of(objects).reason;
          if (now != reason && !now.empty()) {
            query.on_wait(now);
          }
          reason = std::move(now);
        }
      }
    }
    reader.tend();
    watched.run(std::min(k_longest_wait, reader.next_tend()));
    reader.tend();
    if (!reader.flush()) {
      return;
    }
  } while (!is_over || !reader.done());
  finish_logs(reader);
}

} // namespace dtrain::kubernetes
