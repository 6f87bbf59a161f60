#include "backends/kubernetes/objects/trainjob.h"
#include "backends/kubernetes/status/kueue.h"

#include <doctest/doctest.h>

using namespace dtrain;
using namespace dtrain::kubernetes;
using nlohmann::json;

namespace {

json job_named(const std::string& name) {
  return {
      {"metadata", {{"name", name}, {"uid", "uid-" + name}, {"labels", {{k_queue_label, "team"}}}}},
      {"spec", {{"suspend", true}}}};
}

ObjectPtr workload(const std::string& name, const json& conditions) {
  return std::make_shared<json>(
      json{{"metadata", {{"name", name}}}, {"status", {{"conditions", conditions}}}});
}

json no_quota(const std::string& message) {
  return json::array({{{"type", "QuotaReserved"}, {"status", "False"}, {"message", message}}});
}

json admitted() {
  return json::array({{{"type", "QuotaReserved"}, {"status", "True"}},
                      {{"type", "Admitted"}, {"status", "True"}}});
}

json position(const std::string& name, int own, int all) {
  return {{"metadata", {{"name", name}}},
          {"positionInLocalQueue", own},
          {"positionInClusterQueue", all}};
}

} // namespace

TEST_CASE("a job in a queue says why it waits, and in which position") {
  JobObjects objects{job_named("j-worker"), {}, {}};
  CHECK(why_suspended(objects) == "waiting for its turn in the queue team");
  objects.workloads = {workload("w", no_quota("2 more needed"))};
  CHECK(why_suspended(objects) == "waiting for its turn in the queue team: 2 more needed");
  objects.positions = {position("other", 0, 0), position("w", 1, 1)};
  CHECK(why_suspended(objects) ==
        "waiting for its turn in the queue team, position 2: 2 more needed");
  objects.positions[1] = position("w", 1, 4);
  CHECK(why_suspended(objects) == "waiting for its turn in the queue team, position 2 (5 among the "
                                  "queues of its quota): 2 more needed");
}

TEST_CASE("of a launcher and its workers, the one that waits gives the reason") {
  JobObjects objects{job_named("j-worker"), {}, {}};
  objects.lead = job_named("j-launcher");
  objects.workloads = {workload("w", admitted()), workload("l", no_quota("no room"))};
  CHECK(why_suspended(objects) == "waiting for its turn in the queue team: no room");
  CHECK(workloads_query(objects)[0].second ==
        "kueue.x-k8s.io/job-uid in (uid-j-worker,uid-j-launcher)");
}

TEST_CASE("a check that holds up a job which has its quota is named") {
  JobObjects objects{job_named("j-worker"), {}, {}};
  objects.workloads = {
      workload("w", json::array({{{"type", "QuotaReserved"}, {"status", "True"}}}))};
  (*objects.workloads[0])["status"]["admissionChecks"] = json::array(
      {{{"name", "a"}, {"state", "Ready"}},
       {{"name", "capacity"}, {"state", "Pending"}, {"message", "nodes are being made"}}});
  CHECK(why_suspended(objects) == "waiting for its turn in the queue team: it has quota, and waits "
                                  "for the admission check capacity: nodes are being made");
}

TEST_CASE(
    "a job that a person suspended in a queue is suspended, and one that Kueue did says why") {
  JobObjects objects{job_named("j-worker"), {}, {}};
  objects.workloads = {workload("w", no_quota("The workload is deactivated"))};
  (*objects.workloads[0])["spec"]["active"] = false;
  CHECK(why_suspended(objects) == "suspended");
  (*objects.workloads[0])["status"]["conditions"].push_back(
      {{"type", "Evicted"},
       {"status", "True"},
       {"reason", "DeactivatedDueToRequeuingLimitExceeded"},
       {"message", "exceeded the maximum number of re-queuing retries"}});
  CHECK(why_suspended(objects) ==
        "suspended by Kueue: exceeded the maximum number of re-queuing retries");
}

TEST_CASE("a job outside of queues, or that has ended, does not ask Kueue") {
  JobObjects objects{job_named("j-worker"), {}, {}};
  CHECK(wants_queue(objects));
  objects.job["status"]["conditions"] = json::array({{{"type", "Failed"}, {"status", "True"}}});
  CHECK(!wants_queue(objects));
  objects.job = job_named("j-worker");
  objects.job["metadata"].erase("labels");
  CHECK(!wants_queue(objects));
  CHECK(why_suspended(objects) == "suspended");
}

TEST_CASE("a TrainJob's JobSet tells the queue and the uid that Kueue knows") {
  const json trainjob = job_named("j");
  JobObjects objects{job_named("j-worker"), {}, {}};
  objects.set = set_to_be(trainjob, json::object());
  CHECK(queue_of(objects) == "team");
  CHECK(workloads_query(objects)[0].second == "kueue.x-k8s.io/job-uid in (uid-j)");
  objects.set["metadata"].erase("labels");
  objects.set["metadata"]["annotations"][k_queue_annotation] = "team";
  CHECK(queue_of(objects) == "team");
}
