#include "backends/kubernetes/objects/jobset.h"
#include "backends/kubernetes/objects/objects.h"
#include "backends/kubernetes/status/status.h"
#include "backends/kubernetes/status/usage.h"

#include <doctest/doctest.h>

#include <array>
#include <vector>

using namespace dtrain;
using namespace dtrain::kubernetes;
using nlohmann::json;

namespace {

json job_object(int completions) {
  return {{"metadata",
           {{"name", "j-worker"},
            {"namespace", "n"},
            {"uid", "u"},
            {"labels", {{k_manager_label, k_manager}, {k_job_label, "j"}}}}},
          {"spec", {{"completions", completions}}},
          {"status", json::object()}};
}

std::shared_ptr<json> pod_object(int index, const std::string& phase, json state) {
  return std::make_shared<json>(json{
      {"metadata",
       {{"uid", "p" + std::to_string(index)},
        {"creationTimestamp", "2026-01-01T00:00:00Z"},
        {"labels", {{k_index_label, std::to_string(index)}}}}},
      {"spec", {{"nodeName", "node1"}}},
      {"status",
       {{"phase", phase},
        {"containerStatuses", json::array({{{"name", "main"}, {"state", std::move(state)}}})}}}});
}

json running() { return {{"running", {{"startedAt", "2026-01-01T00:00:01Z"}}}}; }

/// A Pod of the Job with the uid `owner`.
ObjectPtr pod(int index, const std::string& owner, const std::string& roles, json state) {
  auto made = pod_object(index, state.contains("running") ? "Running" : "Failed", state);
  (*made)["metadata"]["uid"] = owner + std::to_string(index);
  (*made)["metadata"]["labels"][k_owner_uid_label] = owner;
  (*made)["metadata"]["annotations"][k_roles_annotation] = roles;
  return made;
}

json exited(int code, const std::string& at, const std::string& reason = "Error") {
  return {{"terminated", {{"exitCode", code}, {"finishedAt", at}, {"reason", reason}}}};
}

void add_condition(json& object, const std::string& type, const std::string& reason,
                   const std::string& message, const std::string& status = "True") {
  object["status"]["conditions"].push_back(
      {{"type", type}, {"status", status}, {"reason", reason}, {"message", message}});
}

} // namespace

TEST_CASE("a job runs when each rank's Pod runs, and waits while one does not") {
  JobObjects objects{job_object(2), {pod_object(0, "Running", running())}, {}};
  CHECK(status_of(objects).phase == Phase::pending);
  CHECK(status_of(objects).instances[1].name == "worker-1");
  objects.pods.push_back(pod_object(1, "Running", running()));
  CHECK(status_of(objects).phase == Phase::running);
}

TEST_CASE("a job has the labels that its user gave it, by which list and delete choose") {
  json job = job_object(1);
  job["metadata"]["labels"]["team"] = "vision";
  CHECK(summarize(job).labels == std::vector<std::string>{"team=vision"});
}

TEST_CASE("the first rank to fail is the cause, not those that the Job ended after it") {
  JobObjects objects{job_object(2),
                     {pod_object(0, "Failed", exited(143, "2026-01-01T00:00:09Z")),
                      pod_object(1, "Failed", exited(3, "2026-01-01T00:00:09Z"))},
                     {}};
  (*objects.pods[0])["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:08Z";
  add_condition(objects.job, "Failed", "PodFailurePolicy", "…");
  JobStatus status = status_of(objects);
  CHECK(status.phase == Phase::failed);
  REQUIRE(status.cause);
  CHECK(status.cause->rank == 1);
  CHECK(status.cause->exit_code == 3);
  CHECK(status.reason == "worker-1 (rank 1) on node1 ended with exit code 3");
  CHECK(status.instances[0].signal == 15);
}

TEST_CASE("an exit code beyond 128 is a signal's, as far as there are signals") {
  const auto instance_of = [](const json& state) {
    return status_of({job_object(1), {pod_object(0, "Failed", state)}, {}}).instances.at(0);
  };
  for (const auto& each :
       std::map<int, int>{{1, 0}, {128, 0}, {129, 1}, {137, 9}, {192, 64}, {193, 0}, {255, 0}}) {
    const int code = each.first;
    const int signal = each.second;
    CAPTURE(code);
    const auto found = instance_of(exited(code, "2026-01-01T00:00:09Z"));
    CHECK(found.signal.value_or(0) == signal);
    CHECK(found.exit_code.value_or(0) == (signal == 0 ? code : 0));
  }
  CHECK(instance_of({{"terminated", {{"exitCode", 1}, {"signal", 11}}}}).signal == 11);
  CHECK(!instance_of(running()).exit_code);
}

TEST_CASE("an instance stands as its Pod does, or its main container where that is ahead") {
  const auto phase_of = [](const std::string& phase, const json& state) {
    return status_of({job_object(1), {pod_object(0, phase, state)}, {}}).instances.at(0).phase;
  };
  const char* at = "2026-01-01T00:00:09Z";
  CHECK(phase_of("Pending", json::object()) == Phase::pending);
  CHECK(phase_of("Pending", {{"waiting", json::object()}}) == Phase::pending);
  CHECK(phase_of("Running", running()) == Phase::running);
  CHECK(phase_of("Running", exited(0, at)) == Phase::succeeded);
  CHECK(phase_of("Running", exited(1, at)) == Phase::failed);
  CHECK(phase_of("Succeeded", json::object()) == Phase::succeeded);
  CHECK(phase_of("Failed", json::object()) == Phase::failed);
  CHECK(phase_of("Failed", exited(143, at)) == Phase::terminated); // By its Job's TERM.
}

TEST_CASE("without Pods at hand a job runs once as many as it wants are ready or done") {
  json job = job_object(3);
  job["spec"]["template"]["spec"]["containers"] =
      json::array({{{"name", "main"}, {"resources", {{"limits", {{"nvidia.com/gpu", "2"}}}}}}});
  const auto summary_of = [&](int ready, int succeeded) {
    job["status"] = {{"ready", ready}, {"succeeded", succeeded}};
    return summarize(job);
  };
  CHECK(summary_of(1, 1).phase == Phase::pending);
  CHECK(summary_of(2, 1).phase == Phase::running);
  CHECK(summary_of(2, 1).gpus_requested == 6);
  CHECK(summary_of(2, 1).gpus_allocated == 4);
  add_condition(job, "Complete", "", "");
  CHECK(summarize(job).phase == Phase::succeeded);
  CHECK(summarize(job).gpus_allocated == 0);
}

TEST_CASE("a container killed for memory says so") {
  JobObjects objects{job_object(1),
                     {pod_object(0, "Failed", exited(137, "2026-01-01T00:00:09Z", "OOMKilled"))},
                     {}};
  add_condition(objects.job, "Failed", "x", "y");
  CHECK(status_of(objects).reason.find("out of memory") != std::string::npos);
}

TEST_CASE("a deadline is the cause also where a rank saw its TERM signal") {
  JobObjects objects{
      job_object(1), {pod_object(0, "Failed", exited(143, "2026-01-01T00:00:09Z"))}, {}};
  add_condition(objects.job, "Failed", "DeadlineExceeded", "too long");
  CHECK(status_of(objects).reason == "DeadlineExceeded: too long");
  CHECK(status_of(objects).cause->rank == -1);
}

TEST_CASE("a deadline is the cause where no rank failed") {
  JobObjects objects{job_object(1), {}, {}};
  add_condition(objects.job, "Failed", "DeadlineExceeded", "Job was active too long");
  CHECK(status_of(objects).reason == "DeadlineExceeded: Job was active too long");
}

TEST_CASE("an image that cannot be pulled, an unschedulable Pod and a quota are told apart") {
  json waiting = {{"waiting", {{"reason", "ErrImagePull"}, {"message", "no such image"}}}};
  JobObjects objects{job_object(1), {pod_object(0, "Pending", waiting)}, {}};
  CHECK(status_of(objects).reason ==
        "worker-0: cannot pull the image: ErrImagePull: no such image");

  objects.pods[0] = pod_object(0, "Pending", json::object());
  add_condition(*objects.pods[0], "PodScheduled", "Unschedulable", "0/2 nodes", "False");
  CHECK(status_of(objects).reason == "worker-0: Unschedulable: 0/2 nodes");
  const std::string tried = " preemption: 0/2 nodes are available: ";
  for (const auto& [message, words] : std::map<std::string, std::string>{
           {"2 no GPU." + tried + "2 No preemption victims found for incoming pod.",
            "the cluster is busy: Unschedulable: 2 no GPU."},
           {"2 no GPU. no new claims to deallocate," + tried + "2 Preemption is not helpful",
            "no node matches: Unschedulable: 2 no GPU."},
           {"persistentvolumeclaim \"x\" not found." + tried + "2 Preemption is not helpful",
            "a volume does not exist: Unschedulable: persistentvolumeclaim \"x\" not found."}}) {
    (*objects.pods[0])["status"]["conditions"].clear();
    add_condition(*objects.pods[0], "PodScheduled", "Unschedulable", message.c_str(), "False");
    CHECK(status_of(objects).reason == "worker-0: " + words);
  }

  for (const auto& [reason, message, words] : std::vector<std::array<const char*, 3>>{
           {"Schedulable",
            "Pod a can possibly be assigned to node1, once minAvailable is satisfied",
            "the whole gang does not fit yet"},
           {"Unschedulable", "pod group is not ready, 3 Pending",
            "the whole gang does not fit yet: pod group is not ready, 3 Pending"}}) {
    (*objects.pods[0])["status"]["conditions"].clear();
    add_condition(*objects.pods[0], "PodScheduled", reason, message, "False");
    CHECK(status_of(objects).reason == std::string("worker-0: ") + words);
  }
  (*objects.pods[0])["status"]["conditions"].clear();
  CHECK(status_of(objects).reason.empty());
  (*objects.pods[0])["spec"].erase("nodeName");
  (*objects.pods[0])["spec"]["schedulerName"] = "default-scheduler";
  CHECK(status_of(objects).reason.empty());
  (*objects.pods[0])["spec"]["schedulerName"] = "volcano";
  CHECK(status_of(objects).reason.find("scheduler volcano has not looked at it") !=
        std::string::npos);

  objects.pods.clear();
  CHECK(wants_events(objects));
  objects.events.push_back(std::make_shared<json>(json{{"reason", "FailedCreate"},
                                                       {"message", "exceeded quota: q"},
                                                       {"involvedObject", {{"uid", "u"}}}}));
  CHECK(status_of(objects).reason ==
        "the namespace's quota is used up: FailedCreate: exceeded quota: q");
}

TEST_CASE("a suspended job is so, and one that its queue holds back queues") {
  JobObjects objects{job_object(1), {}, {}};
  objects.job["spec"]["suspend"] = true;
  CHECK(status_of(objects).phase == Phase::suspended);
  CHECK(summarize(objects).phase == Phase::suspended);
  CHECK(status_of(objects).reason == "suspended");
  objects.job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "team";
  CHECK(status_of(objects).phase == Phase::queuing);
  CHECK(summarize(objects).phase == Phase::queuing);
}

TEST_CASE("a replaced rank shows its latest Pod and how often it failed") {
  JobObjects objects{job_object(1),
                     {pod_object(0, "Failed", exited(1, "2026-01-01T00:00:09Z")),
                      pod_object(0, "Running", running())},
                     {}};
  (*objects.pods[1])["metadata"]["creationTimestamp"] = "2026-01-01T00:00:20Z";
  (*objects.pods[1])["metadata"]["annotations"] = {{k_failure_count_annotation, "1"}};
  JobStatus status = status_of(objects);
  CHECK(status.phase == Phase::running);
  CHECK(status.restarts == 1);
}

TEST_CASE("API times are read with and without a fraction, and nonsense is zero") {
  CHECK(parse_time("1970-01-01T00:00:01Z") == 1'000'000'000);
  CHECK(parse_time("1970-01-01T00:00:01.5Z") == 1'500'000'000);
  CHECK(parse_time("1970-01-01T00:00:01.000000007Z") == 1'000'000'007);
  CHECK(parse_time("1970-01-01T00:00:01.0000000071Z") == 1'000'000'007);
  CHECK(parse_time("1970-01-01T00:00:01+5Z") == 0);
  CHECK(parse_time("2999-01-01T00:00:00Z") == 0); // More than a Time holds.
  CHECK(parse_time("yesterday") == 0);
  CHECK(parse_time("") == 0);
}

TEST_CASE("HTTP's dates are read, and nonsense is zero") {
  CHECK(parse_http_date("thu, 01 jan 1970 00:00:01 gmt\r\n") == 1'000'000'000);
  CHECK(parse_http_date("yesterday") == 0);
  CHECK(parse_http_date("") == 0);
}

TEST_CASE("a node whose lease is overdue is named, with what will happen when") {
  JobObjects objects{job_object(1), {pod_object(0, "Running", running())}, {}};
  objects.leases.push_back(
      {{"metadata", {{"name", "node1"}}},
       {"spec", {{"renewTime", "2026-01-01T00:00:00.500000Z"}, {"leaseDurationSeconds", 40}}}});
  CHECK(running_nodes(objects) == std::set<std::string>{"node1"});
  const auto reason_at = [&](const char* now) {
    objects.now = parse_time(now);
    return status_of(objects).reason;
  };
  CHECK(reason_at("2026-01-01T00:00:12Z").empty());
  CHECK(reason_at("2026-01-01T00:00:13Z") == "worker-0: node node1 has not answered for 12 s");
  (*objects.pods[0])["spec"]["tolerations"] =
      json::array({{{"key", "node.kubernetes.io/unreachable"}, {"tolerationSeconds", 30}}});
  CHECK(reason_at("2026-01-01T00:00:20Z") ==
        "worker-0: node node1 has not answered for 19 s; its Pods restart elsewhere 30 s after the "
        "cluster gives the node up (by default 50 s after its last answer)");
  add_condition(*objects.pods[0], "Ready", "NodeStatusUnknown", "", "False");
  CHECK(reason_at("2026-01-01T00:00:50Z") == "worker-0: node node1 is lost");
  objects.leases[0]["metadata"]["name"] = "node2";
  (*objects.pods[0])["status"].erase("conditions");
  CHECK(reason_at("2026-01-01T00:00:50Z").empty());
}

TEST_CASE("a launcher's end is the job's, and its Pod is the first instance") {
  json launcher = job_object(1);
  launcher["metadata"]["name"] = "j-launcher";
  launcher["metadata"]["uid"] = "l";
  launcher["metadata"]["labels"][k_role_label] = "launcher";
  launcher["metadata"]["annotations"][k_roles_annotation] = "launcher=1";
  launcher["metadata"]["ownerReferences"] = json::array({{{"uid", "u"}}});
  json job = job_object(2);
  const auto objects_with = [&](json state) {
    return job_objects("j", {std::make_shared<json>(job), std::make_shared<json>(launcher)},
                       {pod(0, "u", "worker=2", running()), pod(1, "u", "worker=2", running()),
                        pod(0, "l", "launcher=1", std::move(state)),
                        pod(0, "old", "worker=2", running())});
  };
  CHECK(objects_with(running()).pods.size() == 3); // None of a job that had the name before.
  JobStatus status = status_of(objects_with(running()));
  CHECK(status.phase == Phase::running);
  REQUIRE(status.instances.size() == 3);
  CHECK(status.instances[0].name == "launcher-0");
  CHECK(status.instances[0].is_chief);
  CHECK(status.instances[2].name == "worker-1");

  SUBCASE("its failure is the job's, with its exit code") {
    add_condition(launcher, "Failed", "FailedIndexes", "");
    status = status_of(objects_with(exited(5, "2026-01-01T00:00:09Z")));
    CHECK(status.phase == Phase::failed);
    CHECK(status.cause->instance == "launcher-0");
    CHECK(status.cause->rank == -1);
    CHECK(status.cause->exit_code == 5);
  }
  SUBCASE("workers that have ended alone are not") {
    add_condition(job, "Complete", "", "");
    CHECK(summarize(job, launcher).phase != Phase::succeeded);
    add_condition(launcher, "Complete", "", "");
    CHECK(summarize(job, launcher).phase == Phase::succeeded);
  }
  SUBCASE("its end is the job's, though its workers run on") {
    add_condition(launcher, "Complete", "", "");
    CHECK(summarize(job, launcher).phase == Phase::succeeded);
  }
  SUBCASE("its end leaves its workers to itself") {
    add_condition(launcher, "Complete", "", "");
    CHECK(left_over(job, launcher, {}).empty());
  }
  SUBCASE("a worker's failure has no rank: the launcher gives those") {
    add_condition(job, "Failed", "FailedIndexes", "");
    const auto objects =
        job_objects("j", {std::make_shared<json>(job), std::make_shared<json>(launcher)},
                    {pod(0, "u", "worker=2", exited(7, "2026-01-01T00:00:09Z")),
                     pod(1, "u", "worker=2", running()), pod(0, "l", "launcher=1", running())});
    status = status_of(objects);
    REQUIRE(status.cause);
    CHECK(status.cause->instance == "worker-0");
    CHECK(status.cause->rank == -1);
  }
  SUBCASE("while it is suspended the job is") {
    launcher["spec"]["suspend"] = true;
    CHECK(summarize(job, launcher).phase == Phase::suspended);
  }
  SUBCASE("a worker that fails fails the job") {
    add_condition(job, "Failed", "FailedIndexes", "");
    CHECK(summarize(job, launcher).phase == Phase::failed);
  }
}

TEST_CASE("a job whose end is decided runs until its Pods have ended") {
  for (const char* decided : {"FailureTarget", "SuccessCriteriaMet"}) {
    JobObjects objects{job_object(1), {}, {}};
    CHECK(status_of(objects).phase == Phase::pending);
    CHECK(wants_events(objects));
    add_condition(objects.job, decided, "", "");
    CHECK(status_of(objects).phase == Phase::running);
    CHECK(!wants_events(objects));
  }
}

TEST_CASE("of a job that is over, the Jobs that run on are left over, not those that never began") {
  json job = job_object(2);
  json server = job_object(1);
  CHECK(left_over(job, {}, {&server}).empty());
  add_condition(job, "Complete", "", "");
  CHECK(left_over(job, {}, {&server}) == JobList{&server});
  server["spec"]["suspend"] = true;
  CHECK(left_over(job, {}, {&server}).empty());
}

TEST_CASE("parameter servers and an evaluator may have a Job each, in that order") {
  const auto part = [](const char* role) {
    json job = job_object(1);
    job["metadata"]["name"] = std::string("j-") + role;
    job["metadata"]["uid"] = role;
    job["metadata"]["labels"][k_role_label] = role;
    job["metadata"]["ownerReferences"] = json::array({{{"uid", "u"}}});
    job["metadata"]["annotations"][k_roles_annotation] = role + std::string("=1");
    return std::make_shared<json>(job);
  };
  const ObjectPtr servers = part("ps");
  const ObjectPtr evaluator = part("evaluator");
  const auto status = [&] {
    return status_of(
        job_objects("j", {evaluator, std::make_shared<json>(job_object(1)), servers},
                    {pod(0, "u", "worker=1", running()), pod(0, "ps", "ps=1", running()),
                     pod(0, "evaluator", "evaluator=1", running())}));
  };
  REQUIRE(status().instances.size() == 3);
  CHECK(status().instances[1].name == "ps-0");
  CHECK(status().instances[2].name == "evaluator-0");
  add_condition(*evaluator, "Failed", "FailedIndexes", "it fell");
  CHECK(status().phase == Phase::failed);
  CHECK(status().reason.find("it fell") != std::string::npos);
}

TEST_CASE("a JobSet decides when its job has failed, and how often it began anew") {
  json child = job_object(1);
  child["metadata"]["name"] = "j-worker-0";
  child["metadata"]["labels"][k_jobset_uid_label] = "s";
  child["metadata"]["labels"]["jobset.sigs.k8s.io/replicatedjob-name"] = "worker";
  add_condition(child, "Failed", "FailedIndexes", "a rank failed");
  json set = {
      {"metadata",
       {{"name", "j"},
        {"namespace", "n"},
        {"uid", "s"},
        {"labels", {{k_manager_label, k_manager}, {k_job_label, "j"}}}}},
      {"spec",
       {{"replicatedJobs", json::array({{{"name", "worker"}, {"template", job_object(1)}}})}}},
      {"status", {{"restarts", 2}}}};
  const auto read = [&](const std::vector<ObjectPtr>& jobs) {
    return status_of(job_objects("j", jobs, {}, {std::make_shared<json>(set)}));
  };
  CHECK(may_be_set("j", {std::make_shared<json>(child)}));
  JobStatus status = read({std::make_shared<json>(child)});
  CHECK(status.name == "j");
  CHECK(status.phase == Phase::pending); // It may have another attempt.
  CHECK(status.restarts == 2);
  CHECK(read({}).instances.size() == 1); // Between two attempts there is no Job.
  set["spec"]["suspend"] = true;
  CHECK(read({}).phase == Phase::suspended);
  set["spec"]["suspend"] = false;
  add_condition(set, "Failed", "ReachedMaxRestarts", "too often");
  status = read({std::make_shared<json>(child)});
  CHECK(status.phase == Phase::failed);
  CHECK(status.reason == "ReachedMaxRestarts: too often");
}

TEST_CASE("an instance whose Pod is gone ended as its Job's indexes say") {
  JobObjects objects{job_object(6), {}, {}};
  add_condition(objects.job, "Complete", "", "");
  CHECK(status_of(objects).instances[5].phase == Phase::succeeded);
  objects.job["status"]["completedIndexes"] = "0,2-3";
  objects.job["status"]["failedIndexes"] = "5";
  std::vector<Phase> phases;
  for (const InstanceStatus& instance : status_of(objects).instances) {
    phases.push_back(instance.phase);
  }
  CHECK(phases == std::vector<Phase>{Phase::succeeded, Phase::terminated, Phase::succeeded,
                                     Phase::succeeded, Phase::terminated, Phase::failed});
}

TEST_CASE("a volcanojob's tasks stand in their order, and all of them decide") {
  const auto task = [](const std::string& role, const std::string& roles) {
    json job = job_object(1);
    job["metadata"]["uid"] = role.empty() ? "u" : role;
    job["metadata"]["name"] = "j-" + (role.empty() ? "worker" : role);
    job["metadata"]["annotations"][k_roles_annotation] = roles;
    if (!role.empty()) {
      job["metadata"]["labels"][k_role_label] = role;
      job["metadata"]["annotations"][k_success_annotation] = "all";
      job["metadata"]["ownerReferences"] = json::array({{{"uid", "u"}}});
    }
    return std::make_shared<json>(std::move(job));
  };
  const std::vector<ObjectPtr> jobs = {task("task-10", "task-10=1"), task("task-2", "task-2=1"),
                                       task("", "task-0=1")};
  JobObjects objects = job_objects("j", jobs, {});
  std::vector<std::string> names;
  for (const InstanceStatus& instance : status_of(objects).instances) {
    names.push_back(instance.name);
  }
  CHECK(names == std::vector<std::string>{"task-0-0", "task-2-0", "task-10-0"});
  add_condition(objects.job, "Complete", "", "");
  add_condition(objects.others[0], "Complete", "", "");
  CHECK(summarize(objects).phase != Phase::succeeded);
  add_condition(objects.others[1], "Complete", "", "");
  CHECK(summarize(objects).phase == Phase::succeeded);
}
