#include "backends/kubernetes/status/read_job.h"

#include "backends/kubernetes/objects/jobset.h"
#include "backends/kubernetes/objects/objects.h"
#include "backends/kubernetes/objects/trainjob.h"
#include "backends/kubernetes/status/kueue.h"
#include "backends/kubernetes/status/pod_status.h"
#include "submit/errors.h"
#include "submit/text/lower_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace dtrain::kubernetes {

using nlohmann::json;

namespace {

constexpr int k_last_lines = 20;
constexpr int k_last_bytes = 256 << 10; ///< A progress bar's line may be as long as the log.

} // namespace

void throw_no_such_job(const JobRef& ref) {
  throw NotFound(fmt::format("no job {} in namespace {}: `dtrain list -A` shows all",
                             printable(ref.name), printable(ref.namespace_name)));
}

bool is_ours(const json& object) { return label(object, k_manager_label) == k_manager; }

json read_job(ApiClient& api, const JobRef& ref) {
  ApiResult job = api.call(api.request("GET", job_path(ref)));
  if (job.status == k_not_found) {
    ApiResult set = api.call(api.request("GET", jobset_path(ref)));
    if (!set.ok() || is_of_trainjob(set.body)) {
      set = api.call(api.request("GET", trainjob_path(ref)));
    }
    if (set.ok()) { // Without that API, or the right to use it, there is no such job.
      job = std::move(set);
    }
  }
  if (job.status == k_not_found || (job.ok() && !is_ours(job.body))) {
    throw_no_such_job(ref);
  }
  if (!job.ok()) {
    api.fail(job);
  }
  return std::move(job.body);
}

json read_set(ApiClient& api, const JobRef& ref) {
  ApiResult set = api.call(api.request("GET", jobset_path(ref)));
  if (set.ok()) {
    return std::move(set.body);
  }
  const ApiResult trainjob = api.call(api.request("GET", trainjob_path(ref)));
  const ApiResult runtime =
      trainjob.ok() ? api.call(api.request("GET", training_runtime_path(ref))) : ApiResult();
  return runtime.ok() ? set_to_be(trainjob.body, runtime.body) : json();
}

JobObjects read_objects(ApiClient& api, const JobRef& ref) {
  const Query ours = {{"labelSelector", selector_of(ref.name)}};
  std::vector<ApiResult> results =
      api.call_all({api.request("GET", jobs_path(ref.namespace_name), ours),
                    api.request("GET", pods_path(ref.namespace_name), ours)});
  for (const ApiResult& result : results) {
    if (!result.ok()) {
      api.fail(result);
    }
  }
  std::vector<ObjectPtr> jobs;
  std::vector<ObjectPtr> pods;
  for (json& job : results[0].body["items"]) {
    jobs.push_back(std::make_shared<json>(std::move(job)));
  }
  for (json& pod : results[1].body["items"]) {
    pods.push_back(std::make_shared<json>(std::move(pod)));
  }
  std::vector<ObjectPtr> sets;
  if (may_be_set(ref.name, jobs)) {
    json set = read_set(api, ref);
    if (!set.is_null()) {
      sets.push_back(std::make_shared<json>(std::move(set)));
    }
  }
  JobObjects objects = job_objects(ref.name, jobs, pods, sets);
  if (objects.job.is_null()) {
    throw_no_such_job(ref);
  }
  if (wants_queue(objects)) {
    read_queue(api, objects);
  }
  if (wants_events(objects)) {
    ApiResult events = api.call(api.request("GET", events_path(ref.namespace_name),
                                            {{"fieldSelector", "type=Warning"}, {"limit", "500"}}));
    if (events.ok()) { // Without the right to read events less is known.
      for (json& event : events.body["items"]) {
        objects.events.push_back(std::make_shared<json>(std::move(event)));
      }
    }
  }
  return objects;
}

std::vector<JobEvent> read_events(ApiClient& api, const JobRef& ref) {
  const JobObjects objects = read_objects(api, ref);
  std::set<std::string> uids = {text_at(objects.set, "metadata/uid")};
  for (const json* job : jobs_of(objects)) {
    uids.insert(text_at(*job, "metadata/uid"));
  }
  for (const ObjectPtr& pod : objects.pods) {
    uids.insert(text_at(*pod, "metadata/uid"));
  }
  uids.erase("");
  std::vector<JobEvent> events;
  for (const json& event : api.list(events_path(ref.namespace_name), {}).items) {
    if (!uids.contains(text_at(event, "involvedObject/uid"))) {
      continue;
    }
    Time time = 0;
    for (const char* key : {"lastTimestamp", "eventTime", "metadata/creationTimestamp"}) {
      time = time == 0 ? parse_time(text_at(event, key)) : time;
    }
    events.push_back(
        {.source = fmt::format("{}/{}", lower_case(text_at(event, "involvedObject/kind")),
                               text_at(event, "involvedObject/name")),
         .type = text_at(event, "type"),
         .time = time,
         .message = fmt::format("[{}] {}", text_at(event, "reason"), text_at(event, "message"))});
  }
  std::stable_sort(events.begin(), events.end(),
                   [](const JobEvent& a, const JobEvent& b) { return a.time < b.time; });
  return events;
}

void read_leases(ApiClient& api, JobObjects& objects) {
  if (is_final(summarize(objects).phase)) {
    return;
  }
  std::set<std::string> nodes = running_nodes(objects);
  const auto take = [&](json lease) {
    nodes.erase(text_at(lease, "metadata/name"));
    objects.leases.push_back(std::move(lease));
  };
  // Without the right to read leases less is known.
  const auto take_all = [&](const Query& query) {
    ApiResult answer = api.call(api.request("GET", lease_path(""), query));
    if (answer.ok()) {
      objects.now = parse_http_date(answer.date);
      for (json& lease : answer.body["items"]) {
        take(std::move(lease));
      }
    }
  };
  constexpr std::size_t k_few = 3;
  if (nodes.size() > k_few) {
    take_all({});
    return;
  }
  if (nodes.size() > 1) { // One request, except in a large cluster.
    take_all({{"limit", "100"}});
  }
  std::vector<HttpRequest> requests;
  requests.reserve(nodes.size());
  for (const std::string& node : nodes) {
    requests.push_back(api.request("GET", lease_path(node)));
  }
  for (ApiResult& answer : api.call_all(std::move(requests))) {
    if (answer.ok()) {
      objects.now = parse_http_date(answer.date);
      take(std::move(answer.body));
    }
  }
}

void add_last_lines(ApiClient& api, const JobObjects& objects, JobStatus& status) {
  const json* pod = status.phase == Phase::failed ? failed_pod(objects) : nullptr;
  if (pod == nullptr || !status.cause) {
    return;
  }
  HttpRequest request = api.request(
      "GET",
      fmt::format("{}/{}/log", pods_path(status.namespace_name), text_at(*pod, "metadata/name")),
      {{"container", telling_container(*pod)},
       {"tailLines", std::to_string(k_last_lines)},
       {"limitBytes", std::to_string(k_last_bytes)}});
  request.accept = "*/*";
  HttpResponse log = api.http().call(request);
  if (log.status != k_ok) { // The Pod's node is gone, or its log: the cause stands without it.
    return;
  }
  for (std::size_t start = 0; start < log.body.size();) {
    std::size_t end = std::min(log.body.find('\n', start), log.body.size());
    status.cause->last_stderr.push_back(log.body.substr(start, end - start));
    start = end + 1;
  }
}

} // namespace dtrain::kubernetes
