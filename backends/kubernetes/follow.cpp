#include "backends/kubernetes/follow.h"

#include "backends/kubernetes/collection.h"
#include "backends/kubernetes/jobset.h"
#include "backends/kubernetes/log_merge.h"
#include "backends/kubernetes/objects.h"
#include "backends/kubernetes/pod_log.h"
#include "backends/kubernetes/submission.h"
#include "backends/kubernetes/trainjob.h"
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

constexpr std::chrono::seconds k_longest_for_set{30};

/// A job's objects, watched.
class WatchedJob {
 public:
  WatchedJob(ApiClient& api, const JobRef& ref)
      : api_(api), ref_(ref),
        jobs_(api, jobs_path(ref.namespace_name), {{"labelSelector", selector_of(ref.name)}}),
        pods_(api, pods_path(ref.namespace_name), {{"labelSelector", selector_of(ref.name)}}),
        sets_(api, jobsets_path(ref.namespace_name), {{"labelSelector", selector_of(ref.name)}}),
        events_(api, events_path(ref.namespace_name), {{"fieldSelector", "type=Warning"}}) {
    jobs_.start();
    if (job() == nullptr) {
      start_sets();
    }
    if (job() == nullptr) {
      await_set();
    }
    uid_ = text_at(*job(), "metadata/uid");
    pods_.start();
  }

  /// The Job or JobSet that owns the rest; nullptr where it is deleted.
  const json* job() const {
    const auto find = [&](const Collection& collection, const std::string& name) -> const json* {
      for (const auto& [uid, object] : collection.objects()) {
        if ((uid_.empty() || uid == uid_) && text_at(*object, "metadata/name") == name) {
          return object.get();
        }
      }
      return nullptr;
    };
    const json* found = find(jobs_, role_job_name(ref_.name, k_worker_role));
    return found != nullptr ? found : find(sets_, ref_.name);
  }

  const Collection& pods() const { return pods_; }

  JobObjects objects() const {
    std::vector<ObjectPtr> jobs;
    std::vector<ObjectPtr> pods;
    for (const auto& [uid, job] : jobs_.objects()) {
      jobs.push_back(job);
    }
    for (const auto& [uid, pod] : pods_.objects()) {
      pods.push_back(pod);
    }
    std::vector<ObjectPtr> sets;
    for (const auto& [uid, set] : sets_.objects()) {
      sets.push_back(set);
    }
    JobObjects all = job_objects(ref_.name, jobs, pods, sets);
    for (const auto& [uid, event] : events_.objects()) {
      all.events.push_back(event);
    }
    return all;
  }

  void start_sets() {
    try {
      sets_.start();
      has_sets_ = true;
    } catch (const Error&) { // No such API, or not for us: then there is no such job.
      has_sets_ = false;
    }
  }

  /// Of a TrainJob, that its controller is about to make.
  void await_set() {
    if (!has_sets_ || !api_.call(api_.request("GET", trainjob_path(ref_))).ok()) {
      throw_no_such_job(ref_);
    }
    const auto until = std::chrono::steady_clock::now() + k_longest_for_set;
    while (job() == nullptr) {
      if (std::chrono::steady_clock::now() > until) {
        throw EngineError(fmt::format("job {}: Kubeflow Trainer has made no JobSet of its TrainJob "
                                      "in {} s: is its controller running?",
                                      ref_.name, k_longest_for_set.count()));
      }
      run(milliseconds(100));
    }
  }

  /// Events are watched from when they are first of use. Who may not read them is told less.
  void watch_events() {
    if (!events_asked_) {
      events_asked_ = true;
      try {
        events_.start();
        events_open_ = true;
      } catch (const EngineError&) {
        events_open_ = false;
      }
    }
  }

  /// Waits for something to happen, at most `wait`.
  void run(milliseconds wait) {
    wait = std::min({wait, jobs_.next_tend(), pods_.next_tend()});
    if (has_sets_) {
      wait = std::min(wait, sets_.next_tend());
    }
    if (!api_.http().run_once(wait)) {
      std::this_thread::sleep_for(wait);
    }
    jobs_.tend();
    pods_.tend();
    if (has_sets_) {
      sets_.tend();
    }
    if (events_open_) {
      try {
        events_.tend();
      } catch (const EngineError&) {
        events_open_ = false;
      }
    }
  }

  bool take_changed() {
    bool jobs = jobs_.take_changed();
    bool pods = pods_.take_changed();
    bool sets = sets_.take_changed();
    bool events = events_.take_changed();
    return jobs || pods || sets || events;
  }

 private:
  ApiClient& api_;
  const JobRef& ref_;
  Collection jobs_;
  Collection pods_;
  Collection sets_; // Watched where the job is one.
  Collection events_;
  std::string uid_;
  bool has_sets_ = false;
  bool events_asked_ = false;
  bool events_open_ = false;
};

/// What a reader of the status would see change.
std::string fingerprint(const JobStatus& status) {
  std::string text =
      fmt::format("{} {} {}", phase_name(status.phase), status.restarts, status.reason);
  for (const InstanceStatus& instance : status.instances) {
    text += fmt::format("\n{} {} {}", phase_name(instance.phase), instance.node, instance.started);
  }
  return text;
}

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
        logs_.emplace(
            uid, std::make_unique<PodLog>(api_, merge_, pod,
                                          PodLogQuery{query_.follow, query_.tail, query_.since}));
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
  std::map<std::string, std::unique_ptr<PodLog>> logs_; // By the Pod's uid.
  bool first_ = true;
};

void check_instance(const JobObjects& objects, const LogQuery& query) {
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

void watch_job(ApiClient& api, const JobRef& ref, const StatusSink& sink) {
  WatchedJob watched(api, ref);
  std::string last;
  for (;;) {
    if (watched.take_changed()) {
      if (watched.job() == nullptr) {
        throw NotFound(fmt::format("job {} was deleted", ref.name));
      }
      JobObjects objects = watched.objects();
      if (wants_events(objects)) {
        watched.watch_events();
        objects = watched.objects();
      }
      JobStatus status = status_of(objects);
      if (std::string now = fingerprint(status); now != last) {
        last = now;
        add_last_lines(api, objects, status);
        if (!sink(status)) {
          return;
        }
      }
      if (is_final(status.phase)) {
        return;
      }
    }
    watched.run(k_longest_wait);
  }
}

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
  WatchedJob watched(api, ref);
  check_instance(watched.objects(), query);
  bool is_over = false;
  std::string reason;
  do {
    if (watched.take_changed()) {
      if (watched.job() == nullptr) {
        is_over = true; // Deleted: what its Pods have written is given to the end.
      } else {
        JobObjects objects = watched.objects();
        reader.update(objects);
        is_over = is_final(summarize(objects.job, objects.launcher).phase);
        if (query.on_wait && wants_events(objects)) {
          watched.watch_events();
          std::string now = status_of(watched.objects()).reason;
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
