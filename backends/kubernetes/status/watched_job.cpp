#include "backends/kubernetes/status/watched_job.h"

#include "backends/kubernetes/objects/jobset.h"
#include "backends/kubernetes/objects/trainjob.h"
#include "backends/kubernetes/status/kueue.h"
#include "backends/kubernetes/status/read_job.h"
#include "submit/errors.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

namespace dtrain::kubernetes {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;

constexpr std::chrono::seconds k_longest_for_set{30};

std::vector<ObjectPtr> all_of(const Collection& collection) {
  std::vector<ObjectPtr> objects;
  for (const auto& [uid, object] : collection.objects()) {
    objects.push_back(object);
  }
  return objects;
}

} // namespace

void WatchedJob::Extra::start(ApiClient& api, const std::string& path, const Query& query) {
  if (collection_) {
    return;
  }
  collection_.emplace(api, path, query);
  try {
    collection_->start();
    open_ = true;
  } catch (const Error&) { // No such API, or not for us.
    open_ = false;
  }
}

void WatchedJob::Extra::tend() {
  if (open_) {
    try {
      collection_->tend();
    } catch (const EngineError&) {
      open_ = false;
    }
  }
}

std::vector<ObjectPtr> WatchedJob::Extra::objects() const {
  return collection_ ? all_of(*collection_) : std::vector<ObjectPtr>();
}

WatchedJob::WatchedJob(ApiClient& api, const JobRef& ref)
    : api_(api), ref_(ref),
      jobs_(api, jobs_path(ref.namespace_name), {{"labelSelector", selector_of(ref.name)}}),
      pods_(api, pods_path(ref.namespace_name), {{"labelSelector", selector_of(ref.name)}}),
      sets_(api, jobsets_path(ref.namespace_name), {{"labelSelector", selector_of(ref.name)}}) {
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

const json* WatchedJob::job() const {
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

JobObjects WatchedJob::watched() const {
  return job_objects(ref_.name, all_of(jobs_), all_of(pods_), all_of(sets_));
}

JobObjects WatchedJob::objects() {
  JobObjects all = watched();
  if (wants_queue(all)) {
    workloads_.start(api_, workloads_path(ref_.namespace_name), workloads_query(all));
  }
  if (wants_events(all)) {
    events_.start(api_, events_path(ref_.namespace_name), {{"fieldSelector", "type=Warning"}});
  }
  all.workloads = workloads_.objects();
  all.events = events_.objects();
  return all;
}

void WatchedJob::start_sets() {
  try {
    sets_.start();
    has_sets_ = true;
  } catch (const Error&) { // No such API, or not for us: then there is no such job.
    has_sets_ = false;
  }
}

/// Of a TrainJob, that its controller is about to make.
void WatchedJob::await_set() {
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

void WatchedJob::run(milliseconds wait) {
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
  events_.tend();
  workloads_.tend();
}

bool WatchedJob::take_changed() {
  bool jobs = jobs_.take_changed();
  bool pods = pods_.take_changed();
  bool sets = sets_.take_changed();
  bool events = events_.take_changed();
  bool workloads = workloads_.take_changed();
  return jobs || pods || sets || events || workloads;
}

} // namespace dtrain::kubernetes
