#include "backends/kubernetes/status/watched_jobs.h"

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

/// Objects of a job, or of all jobs if that is empty.
std::vector<ObjectPtr> objects_of(const Collection& collection, std::string_view job = {}) {
  std::vector<ObjectPtr> objects;
  for (const auto& [uid, object] : collection.objects()) {
    if (job.empty() || label(*object, k_job_label) == job) {
      objects.push_back(object);
    }
  }
  return objects;
}

} // namespace

void WatchedJobs::Extra::start(ApiClient& api, const std::string& path, const Query& query) {
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

void WatchedJobs::Extra::tend() {
  if (open_) {
    try {
      collection_->tend();
    } catch (const EngineError&) {
      open_ = false;
    }
  }
}

std::vector<ObjectPtr> WatchedJobs::Extra::objects() const {
  return collection_ ? objects_of(*collection_) : std::vector<ObjectPtr>();
}

WatchedJobs::WatchedJobs(ApiClient& api, std::string namespace_name, std::vector<std::string> names)
    : api_(api), namespace_(std::move(namespace_name)),
      jobs_(api, jobs_path(namespace_), {{"labelSelector", selector_of(names)}}),
      pods_(api, pods_path(namespace_), {{"labelSelector", selector_of(names)}}),
      sets_(api, jobsets_path(namespace_), {{"labelSelector", selector_of(names)}}) {
  for (auto& name : names) {
    jobs_of_names_.emplace_back().name = std::move(name);
  }
  const auto is_absent = [this](const Job& job) { return find(job) == nullptr; };
  jobs_.start();
  if (std::any_of(jobs_of_names_.begin(), jobs_of_names_.end(), is_absent)) {
    start_sets();
  }
  for (auto& job : jobs_of_names_) {
    if (is_absent(job)) {
      await_set(job);
    }
    if (const json* found = find(job)) {
      job.uid = text_at(*found, "metadata/uid");
    }
  }
  pods_.start();
}

const json* WatchedJobs::find(const Job& job) const {
  const auto find_in = [&](const Collection& collection, const std::string& name) -> const json* {
    for (const auto& [uid, object] : collection.objects()) {
      if ((job.uid.empty() || uid == job.uid) && text_at(*object, "metadata/name") == name) {
        return object.get();
      }
    }
    return nullptr;
  };
  const json* found = find_in(jobs_, role_job_name(job.name, k_worker_role));
  return found != nullptr ? found : find_in(sets_, job.name);
}

const json& WatchedJobs::job(std::size_t which) const {
  const Job& job = jobs_of_names_[which];
  const json* found = find(job);
  if (found == nullptr && job.uid.empty()) {
    throw_no_such_job({namespace_, job.name});
  }
  if (found == nullptr) {
    throw NotFound(fmt::format("job {} was deleted", job.name));
  }
  return *found;
}

JobObjects WatchedJobs::objects(std::size_t which) {
  Job& job = jobs_of_names_[which];
  JobObjects all = job_objects(job.name, objects_of(jobs_, job.name), objects_of(pods_, job.name),
                               objects_of(sets_, job.name));
  if (wants_queue(all)) {
    job.workloads.start(api_, workloads_path(namespace_), workloads_query(all));
  }
  if (wants_events(all)) {
    events_.start(api_, events_path(namespace_), {{"fieldSelector", "type=Warning"}});
  }
  all.workloads = job.workloads.objects();
  all.events = events_.objects();
  return all;
}

void WatchedJobs::start_sets() {
  try {
    sets_.start();
    has_sets_ = true;
  } catch (const Error&) { // No such API, or not for us: then there is no such job.
    has_sets_ = false;
  }
}

/// Of a TrainJob whose controller is about to make it.
void WatchedJobs::await_set(const Job& job) {
  const JobRef ref{namespace_, job.name};
  if (!has_sets_ || !api_.call(api_.request("GET", trainjob_path(ref))).ok()) {
    return;
  }
  const auto until = std::chrono::steady_clock::now() + k_longest_for_set;
  while (find(job) == nullptr) {
    if (std::chrono::steady_clock::now() > until) {
      throw EngineError(fmt::format("job {}: Kubeflow Trainer has created no JobSet for its "
                                    "TrainJob in {} s; check that its controller runs",
                                    job.name, k_longest_for_set.count()));
    }
    run(milliseconds(100));
  }
}

void WatchedJobs::run(milliseconds wait) {
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
  for (auto& job : jobs_of_names_) {
    job.workloads.tend();
  }
}

bool WatchedJobs::take_changed() {
  bool jobs = jobs_.take_changed();
  bool pods = pods_.take_changed();
  bool sets = sets_.take_changed();
  bool events = events_.take_changed();
  bool workloads = false;
  for (auto& job : jobs_of_names_) {
    workloads = job.workloads.take_changed() || workloads;
  }
  return jobs || pods || sets || events || workloads;
}

} // namespace dtrain::kubernetes
