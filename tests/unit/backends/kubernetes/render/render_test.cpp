#include "backends/kubernetes/objects/objects.h"
#include "backends/kubernetes/objects/trainjob.h"
#include "backends/kubernetes/objects/yaml_json.h"
#include "backends/kubernetes/own_fields.h"
#include "backends/kubernetes/render/job_data.h"
#include "backends/kubernetes/render/render.h"
#include "backends/kubernetes/render/scripts.h"
#include "submit/errors.h"
#include "submit/text/base64.h"
#include "tests/unit/backends/temporary_folder.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

using namespace dtrain;
using namespace dtrain::kubernetes;

namespace {

JobSpec job_of(int workers, std::vector<std::string> command) {
  JobSpec job;
  job.name = "mnist";
  job.image = "train:1";
  job.workers = workers;
  job.command = std::move(command);
  return job;
}

nlohmann::json document(const Plan& plan, const std::string& name) {
  for (const Plan::Document& document : plan.documents) {
    if (document.name == name) {
      return yaml_documents(document.text, name).at(0);
    }
  }
  return {};
}

std::string error_of(const JobSpec& job) {
  try {
    render_plan(job);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

/// What the script's command prints when the Pod's index is `rank`.
std::string run_script(const std::string& script, int rank) {
  const dtrain::test::TemporaryFolder folder;
  const std::string path = folder.write("start.sh", script);
  std::string command = "env -i PATH=/usr/bin:/bin JOB_COMPLETION_INDEX=" + std::to_string(rank) +
                        " DTRAIN_JOB_UID=uid-1 DTRAIN_JOB_TOKEN=token-1 DTRAIN_RESTART_COUNT=2 "
                        "sh " +
                        path;
  FILE* pipe = popen(command.c_str(), "r"); // NOLINT(cert-env33-c)
  std::string output;
  for (int c = 0; (c = fgetc(pipe)) != EOF;) {
    output += static_cast<char>(c);
  }
  pclose(pipe);
  return output;
}

} // namespace

TEST_CASE("start.sh gives every instance what rank_env promises") {
  JobSpec job = job_of(3, {"env", "-0"});
  SUBCASE("workers alone") {}
  SUBCASE("every role of a tfjob") {
    job.type = "tfjob";
    job.chief = job.evaluator = true;
    job.ps = 2;
    Member<int>{.key = "psPort"}(job) = 4000;
  }
  SUBCASE("a master, and torchrun") {
    job.type = "pytorchjob";
    job.nproc_per_node = "2";
  }
  job.max_restarts = 4;
  GangPlace gang = gang_of(job);
  gang.job_uid = "uid-1";
  gang.job_token = "token-1";
  gang.restart_count = 2;
  gang.master_addr = gang.ranks[0].host;
  std::string script = start_script(job, role_groups(job).at(0));
  // The name has no address on this machine: skip the wait, which is not what is tested.
  std::size_t wait = script.find("until has_address");
  REQUIRE(wait != std::string::npos);
  script.replace(wait, std::string("until has_address").size(), "until true");
  for (int rank = 0; rank < static_cast<int>(gang.ranks.size()); ++rank) {
    std::map<std::string, std::string> given;
    std::istringstream output(run_script(script, rank));
    for (std::string entry; std::getline(output, entry, '\0');) {
      given[entry.substr(0, entry.find('='))] = entry.substr(entry.find('=') + 1);
    }
    const EnvVars promised = rank_env(gang, rank);
    for (const auto& variable : promised) { // Clang's lambdas take no structured bindings.
      CAPTURE(variable.first);
      CHECK(given[variable.first] == variable.second);
    }
    const bool has_rank = std::any_of(promised.begin(), promised.end(),
                                      [](const auto& var) { return var.first == "RANK"; });
    CHECK(given.contains("RANK") == has_rank);
  }
}

TEST_CASE("with --role-sequence an instance waits for those of the role before its own") {
  JobSpec job = job_of(2, {"true"});
  job.type = "tfjob";
  job.chief = true;
  job.ps = 1;
  job.role_sequence = "PS,Chief";
  SUBCASE("in one Job") {}
  SUBCASE("in Jobs of their own") { own::Text{.key = "psCpu"}(job) = "2"; }
  std::map<std::string, std::string> waits; // by host
  for (const RoleGroup& group : role_groups(job)) {
    // Names are known at once, and printed.
    const std::string script =
        "exec 2>/dev/null\ngetent() { :; }\n" + sequence_script(job, group) + "echo \"$*\"\n";
    // One that begins anew waits for nobody: those before it may have ended.
    CHECK(run_script(script, 1) == "");
    for (int i = 0; i < instances_of(group.roles); ++i) {
      std::string words = run_script("DTRAIN_RESTART_COUNT=0\n" + script, i);
      words.pop_back();
      waits[fmt::format("{}-{}", group.name, i)] = words;
    }
    CHECK(
        document(render_plan(job), "configmap.yaml")["data"].contains(sequence_script_name(group)));
  }
  const std::string ps = waits.contains("ps-0") ? "mnist-ps-0.mnist" : "mnist-worker-3.mnist";
  CHECK(waits["worker-0"] == ps);
  CHECK(waits["worker-1"] == "mnist-worker-0.mnist");
  CHECK(waits["worker-2"] == "mnist-worker-0.mnist");
  CHECK(waits[ps == "mnist-ps-0.mnist" ? "ps-0" : "worker-3"] == "");
  const auto spec = document(render_plan(job), "job.yaml")["spec"]["template"]["spec"];
  CHECK(spec["initContainers"].back()["command"][1] == "/etc/dtrain/sequence.sh");
  CHECK(document(render_plan(job), "service.yaml")["spec"]["publishNotReadyAddresses"] == false);
}

TEST_CASE("an etjob finds its hosts by the script that Arena has") {
  JobSpec job = job_of(2, {"horovodrun"});
  job.type = "etjob";
  const auto config = document(render_plan(job), "configmap.yaml")["data"];
  const dtrain::test::TemporaryFolder folder;
  const std::string hosts = folder.write("hosts", config["hostfile"].get<std::string>());
  CHECK(run_script("DTRAIN_HOSTFILE=" + hosts + "\n" + config["discover_hosts"].get<std::string>(),
                   0) == "mnist-worker-0.mnist:1\nmnist-worker-1.mnist:1\n");
  const auto is_mounted = [&] {
    return document(render_plan(job), "launcher.yaml").dump().find("bin/discover_hosts.sh") !=
           std::string::npos;
  };
  CHECK(is_mounted());
  job.type = "mpijob";
  CHECK_FALSE(is_mounted());
}

TEST_CASE("with --role-sequence an instance stays until the next role has seen it") {
  const dtrain::test::TemporaryFolder folder;
  const std::string up = folder.path() + "/up";
  JobSpec job = job_of(1, {"sh", "-c", "echo ends"});
  job.type = "tfjob";
  job.ps = job.evaluator = true;
  job.role_sequence = "PS,Worker,Evaluator";
  const auto run = [&](int place) {
    // The names of others are there after a while, and sleeping takes no time.
    std::string script = "getent() { [ -e " + up + " ]; }\nsleep() { touch " + up + "; }\n" +
                         start_script(job, role_groups(job).at(0));
    const std::string settle = "exec sleep 15";
    const std::size_t found = script.find(settle);
    REQUIRE(found != std::string::npos);
    script.replace(found, settle.size(), "echo 'was seen'");
    return run_script("(\n" + script + "\n)\necho \"code $?\"\n", place);
  };
  CHECK(run(1) == "ends\ncode 0\n"); // ps-0, which no role comes before
  CHECK(std::filesystem::exists(up));
  std::filesystem::remove(up);
  CHECK(run(2).find("was seen\n") != std::string::npos); // evaluator-0, which none comes after
  CHECK_FALSE(std::filesystem::exists(up));
  job.command = {"sh", "-c", "exit 3"};
  CHECK(run(1) == "code 3\n");
}

TEST_CASE("arguments and environment arrive byte for byte, UTF-8 or not") {
  const std::string odd = "a \"b\" $c `d` {{e}} #f\n'\xff\\";
  JobSpec job = job_of(1, {"printenv", "-0", "ODD"});
  job.env = {"ODD=" + odd};
  std::string script = start_script(job, role_groups(job).at(0));
  script.replace(script.find("until has_address"), std::string("until has_address").size(),
                 "until true");
  CHECK(run_script(script, 0) == odd + '\0');

  nlohmann::json config = document(render_plan(job), "configmap.yaml");
  CHECK(base64_decode(config["binaryData"]["start.sh"].get<std::string>()) ==
        start_script(job, role_groups(job).at(0)));
}

TEST_CASE("the Job asks for a Pod a rank, with GPUs, and passes the restricted level") {
  JobSpec job = job_of(3, {"true"});
  job.gpus = 2;
  job.memory = "1Gi";
  own::tolerations(job) = {"gpu=yes:NoSchedule", "spot"};
  job.data = {"claim:/data"};
  nlohmann::json spec = document(render_plan(job), "job.yaml")["spec"];
  CHECK(spec["completions"] == 3);
  CHECK(spec["completionMode"] == "Indexed");
  nlohmann::json pod = spec["template"]["spec"];
  nlohmann::json container = pod["containers"][0];
  CHECK(container["resources"]["limits"] ==
        nlohmann::json{{"nvidia.com/gpu", "2"}, {"memory", "1Gi"}});
  CHECK(pod["securityContext"]["runAsNonRoot"] == true);
  CHECK(pod["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault");
  CHECK(container["securityContext"]["allowPrivilegeEscalation"] == false);
  CHECK(container["securityContext"]["capabilities"]["drop"] == nlohmann::json::array({"ALL"}));
  CHECK(pod["tolerations"][2] ==
        nlohmann::json{
            {"key", "gpu"}, {"operator", "Equal"}, {"value", "yes"}, {"effect", "NoSchedule"}});
  CHECK(pod["tolerations"][3] == nlohmann::json{{"key", "spot"}, {"operator", "Exists"}});
  CHECK(container["volumeMounts"][2]["mountPath"] == "/data");
  CHECK(pod["volumes"][2]["persistentVolumeClaim"]["claimName"] == "claim");
}

TEST_CASE("tolerations are taken as Arena's users write them") {
  JobSpec job = job_of(1, {"true"});
  own::tolerations(job) = {"all", "gpu=yes:NoSchedule,Equal"};
  nlohmann::json pod = document(render_plan(job), "job.yaml")["spec"]["template"]["spec"];
  CHECK(pod["tolerations"][2] == nlohmann::json{{"key", ""}, {"operator", "Exists"}});
  CHECK(pod["tolerations"][3] ==
        nlohmann::json{
            {"key", "gpu"}, {"operator", "Equal"}, {"value", "yes"}, {"effect", "NoSchedule"}});
}

TEST_CASE("with --rdma the workers get the device, and may lock memory") {
  JobSpec job = job_of(1, {"true"});
  job.rdma = true;
  for (const int user : {1000, 0}) {
    own::run_as_user(job) = user;
    const nlohmann::json pod = document(render_plan(job), "job.yaml")["spec"]["template"]["spec"];
    const nlohmann::json& container = pod["containers"][0];
    CHECK(container["resources"]["limits"] == nlohmann::json{{"rdma/hca", "1"}});
    CHECK(container["securityContext"]["capabilities"]["add"] ==
          nlohmann::json::array({"IPC_LOCK"}));
  }
  job.type = "mpijob";
  const nlohmann::json launcher =
      document(render_plan(job), "launcher.yaml")["spec"]["template"]["spec"]["containers"][0];
  CHECK(!launcher.contains("resources"));
}

TEST_CASE("the roles are places of one Job, whose success is the ranks'") {
  JobSpec job = job_of(2, {"true"});
  nlohmann::json document_of_job = document(render_plan(job), "job.yaml");
  CHECK(!document_of_job["spec"].contains("successPolicy"));
  job.chief = true;
  job.ps = 2;
  document_of_job = document(render_plan(job), "job.yaml");
  CHECK(document_of_job["spec"]["completions"] == 5);
  CHECK(document_of_job["spec"]["successPolicy"]["rules"][0]["succeededIndexes"] == "0-2");
  CHECK(instance_of(document_of_job, 0) == "chief-0");
  CHECK(instance_of(document_of_job, 2) == "worker-1");
  CHECK(instance_of(document_of_job, 4) == "ps-1");
  job.chief = false;
  job.workers = 1;
  document_of_job = document(render_plan(job), "job.yaml");
  CHECK(document_of_job["spec"]["successPolicy"]["rules"][0]["succeededIndexes"] == "0");
  job.chief = true;
  job.success_policy = "ChiefWorker";
  document_of_job = document(render_plan(job), "job.yaml");
  CHECK(document_of_job["spec"]["successPolicy"]["rules"][0]["succeededIndexes"] == "0");
}

TEST_CASE("a chief that asks for other than the workers has a Job of its own, and rank 0") {
  JobSpec job = job_of(2, {"true"});
  job.backend = "kubernetes";
  job.type = "tfjob";
  job.chief = true;
  job.ps = 1;
  job.gpus = 1;
  own::Text{.key = "chiefMemory"}(job) = "1Gi";
  const Plan plan = render_plan(resolve(job));
  CHECK(plan.documents.at(0).name == "job.yaml");
  CHECK(document(plan, "job.yaml")["spec"]["completions"] == 2);
  CHECK(!document(plan, "job.yaml")["spec"].contains("successPolicy"));
  const nlohmann::json chief = document(plan, "chief.yaml");
  CHECK(chief["metadata"]["name"] == "mnist-chief");
  CHECK(!chief["metadata"]["annotations"].contains("dtrain/success"));
  CHECK(document(plan, "ps.yaml")["metadata"]["name"] == "mnist-ps");
  const GangPlace gang = gang_of(resolve(job));
  CHECK(gang.ranks[0].host == "mnist-chief-0.mnist");
  CHECK(gang.ranks[1].host == "mnist-worker-0.mnist");
  CHECK(gang.ranks[3].host == "mnist-ps-0.mnist");
  CHECK(gang.master_addr == "mnist-chief-0.mnist");
  job.success_policy = "AllWorkers";
  const nlohmann::json of_all = document(render_plan(resolve(job)), "chief.yaml");
  CHECK(of_all["metadata"]["annotations"]["dtrain/success"] == "all");
  own::api(job) = "jobset";
  const nlohmann::json set = document(render_plan(resolve(job)), "jobset.json");
  CHECK(set["spec"]["successPolicy"]["targetReplicatedJobs"] ==
        nlohmann::json::array({"worker", "chief"}));
}

TEST_CASE("roles without ranks that ask for other than the ranks have a Job of their own") {
  JobSpec job = job_of(2, {"true"});
  job.gpus = 1;
  job.ps = 2;
  job.evaluator = true;
  own::Text{.key = "evaluatorImage"}(job) = "other";
  CHECK(document(render_plan(job), "ps.yaml")["spec"]["completions"] == 2);
  CHECK(document(render_plan(job), "evaluator.yaml")["spec"]["completions"] == 1);
  CHECK(gang_of(job).ranks[3].host == "mnist-ps-1.mnist");
  CHECK(gang_of(job).ranks[4].host == "mnist-evaluator-0.mnist");
  own::ps_image(job) = "other";
  job.ps_gpus = 1;
  const Plan plan = render_plan(job);
  const nlohmann::json ranks = document(plan, "job.yaml");
  const nlohmann::json servers = document(plan, "ps.yaml");
  CHECK(ranks["spec"]["completions"] == 2);
  CHECK(!ranks["spec"].contains("successPolicy"));
  CHECK(servers["metadata"]["name"] == "mnist-ps");
  CHECK(servers["metadata"]["labels"]["dtrain/role"] == "ps");
  CHECK(servers["spec"]["completions"] == 3);
  CHECK(instance_of(servers, 1) == "ps-1");
  CHECK(instance_of(servers, 2) == "evaluator-0");
  const nlohmann::json container = servers["spec"]["template"]["spec"]["containers"][0];
  CHECK(container["image"] == "other");
  CHECK(container["command"][1] == "/etc/dtrain/ps.sh");
  const GangPlace gang = gang_of(job);
  CHECK(gang.ranks[1].host == "mnist-worker-1.mnist");
  CHECK(gang.ranks[2].host == "mnist-ps-0.mnist");
  CHECK(gang.ranks[4].host == "mnist-ps-2.mnist");
  job.queue = "q";
  CHECK(error_of(job).find("--api=jobset") != std::string::npos);
  own::api(job) = "jobset";
  const nlohmann::json set = document(render_plan(job), "jobset.json");
  CHECK(set["spec"]["replicatedJobs"][1]["name"] == "ps");
  CHECK(set["spec"]["successPolicy"]["targetReplicatedJobs"] == nlohmann::json::array({"worker"}));
  own::Text{.key = "evaluatorImage"}(job).clear(); // As the workers': it is one of their Job.
  job.ps_gpus = 0;
  CHECK(gang_of(job).ranks[2].host == "mnist-worker-0-2.mnist");
  CHECK(gang_of(job).ranks[3].host == "mnist-ps-0-0.mnist");
}

TEST_CASE("a launcher has a Job of its own, and asks for no GPU") {
  JobSpec job = job_of(3, {"mpirun", "a b"});
  job.type = "mpijob";
  job.gpus = 2;
  job.queue = "q";
  job.env = {"ODD=it's"};
  own::Texts{.key = "launcherAnnotations"}(job) = {"who=launcher"};
  const Plan plan = render_plan(job);
  const nlohmann::json workers = document(plan, "job.yaml");
  const nlohmann::json launcher = document(plan, "launcher.yaml");
  CHECK(workers["metadata"]["name"] == "mnist-worker");
  CHECK(workers["spec"]["completions"] == 3);
  CHECK(workers["spec"]["suspend"] == true);
  CHECK(workers["spec"]["template"]["spec"]["containers"][0]["command"][1] ==
        "/etc/dtrain/worker.sh");
  CHECK(gpus_of(workers["spec"]["template"]["spec"]) == 2);
  CHECK(instance_of(workers, 2) == "worker-2");
  CHECK(launcher["metadata"]["name"] == "mnist-launcher");
  CHECK(launcher["metadata"]["labels"]["dtrain/role"] == "launcher");
  CHECK(launcher["spec"]["completions"] == 1);
  CHECK(!launcher["spec"].contains("suspend"));
  CHECK(launcher["spec"]["template"]["metadata"]["annotations"]["who"] == "launcher");
  CHECK(gpus_of(launcher["spec"]["template"]["spec"]) == 0);
  CHECK(instance_of(launcher, 0) == "launcher-0");
  const nlohmann::json secret = launcher["spec"]["template"]["spec"]["volumes"][2]["secret"];
  CHECK(secret["defaultMode"] == 0400);
  nlohmann::json config = document(plan, "configmap.yaml")["data"];
  CHECK(config["hostfile"] == "mnist-worker-0.mnist slots=2\n"
                              "mnist-worker-1.mnist slots=2\n"
                              "mnist-worker-2.mnist slots=2\n");
  CHECK(config["worker.sh"].get<std::string>().find("export 'ODD'='it'\\''s'") !=
        std::string::npos);
  CHECK(config["ssh_config"].get<std::string>().starts_with("Host mnist-worker-*\n"));
  const std::string start = config["start.sh"];
  CHECK(start.find("set -- 'mpirun' 'a b'\n. /etc/dtrain/launcher.sh") != std::string::npos);
  CHECK(start.find("TF_CONFIG") == std::string::npos);
}

TEST_CASE("where and with what a Pod runs is what was asked for") {
  JobSpec job = job_of(1, {"true"});
  job.labels = {"team=a"};
  own::annotations(job) = {"note=b c"};
  own::scheduler(job) = "volcano";
  own::gpu_type(job) = "H200";
  own::devices(job) = {"amd.com/gpu=2"};
  job.node_list = {"n1", "n2"};
  job.host_network = job.host_ipc = job.host_pid = true;
  job.cpu = "1";
  own::Text{.key = "workerCpuLimit"}(job) = "2";
  own::Text{.key = "workerMemoryLimit"}(job) = "4Gi";
  nlohmann::json made = document(render_plan(job), "job.yaml");
  CHECK(made["metadata"]["labels"]["team"] == "a");
  nlohmann::json pod = made["spec"]["template"];
  CHECK(pod["metadata"]["annotations"]["note"] == "b c");
  pod = pod["spec"];
  CHECK(pod["schedulerName"] == "volcano");
  CHECK(pod["nodeSelector"]["nvidia.com/gpu.product"] == "H200");
  CHECK(pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
           ["nodeSelectorTerms"][0]["matchExpressions"][0]["values"] ==
        nlohmann::json::array({"n1", "n2"}));
  CHECK(pod["hostNetwork"] == true);
  CHECK(pod["hostIPC"] == true);
  CHECK(pod["hostPID"] == true);
  CHECK(!pod.contains("shareProcessNamespace"));
  CHECK(pod["containers"][0]["resources"] ==
        nlohmann::json{{"limits", {{"amd.com/gpu", "2"}, {"cpu", "2"}, {"memory", "4Gi"}}},
                       {"requests", {{"cpu", "1"}}}});
}

TEST_CASE("workers lie together or apart as asked, and a launcher anywhere") {
  JobSpec job = job_of(2, {"true"});
  job.type = "mpijob";
  own::binpack(job) = true;
  job.node_list = {"n1"};
  own::topology_spread(job) = {"zone:required", "rack"};
  const Plan plan = render_plan(job);
  const nlohmann::json pod = document(plan, "job.yaml")["spec"]["template"]["spec"];
  CHECK(pod["affinity"].size() == 2);
  const nlohmann::json near =
      pod["affinity"]["podAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"][0];
  CHECK(near["podAffinityTerm"]["topologyKey"] == "kubernetes.io/hostname");
  CHECK(near["podAffinityTerm"]["labelSelector"]["matchLabels"]["dtrain/job"] == "mnist");
  CHECK(pod["topologySpreadConstraints"][0]["topologyKey"] == "zone");
  CHECK(pod["topologySpreadConstraints"][0]["whenUnsatisfiable"] == "DoNotSchedule");
  CHECK(pod["topologySpreadConstraints"][1]["whenUnsatisfiable"] == "ScheduleAnyway");
  const nlohmann::json launcher = document(plan, "launcher.yaml")["spec"]["template"]["spec"];
  CHECK(launcher["affinity"].size() == 1);
  CHECK(!launcher.contains("topologySpreadConstraints"));
  for (const char* over_nodes : {"kubernetes.io/hostname", "node"}) {
    own::topology_spread(job) = {over_nodes};
    CHECK(error_of(job).starts_with("--binpack: "));
  }
  own::binpack(job) = false;
  const nlohmann::json even = document(render_plan(job), "job.yaml")["spec"]["template"]["spec"];
  CHECK(even["topologySpreadConstraints"][0]["topologyKey"] == "kubernetes.io/hostname");
}

TEST_CASE("a gang has the PodGroup of the scheduler that places it") {
  JobSpec job = job_of(2, {"true"});
  job.gang = true;
  job.queue = "q";
  CHECK(document(render_plan(job), k_group_document).is_null()); // Kueue admits jobs whole.
  own::scheduler(job) = "volcano";
  Plan plan = render_plan(job);
  CHECK(document(plan, k_group_document)["spec"] ==
        nlohmann::json{{"minMember", 2}, {"queue", "q"}});
  CHECK(!document(plan, "job.yaml")["spec"].contains("suspend"));
  own::scheduler(job) = "mine";
  job.queue.clear();
  plan = render_plan(job);
  CHECK(document(plan, k_group_document)["apiVersion"] == "scheduling.x-k8s.io/v1alpha1");
  CHECK(document(plan, "job.yaml")["spec"]["template"]["metadata"]["labels"]
                                  ["scheduling.x-k8s.io/pod-group"] == "mnist");
}

TEST_CASE("a JobSet has a role's Job each, and starts all anew") {
  JobSpec job = job_of(2, {"true"});
  own::api(job) = "jobset";
  job.type = "mpijob";
  job.max_restarts = 3;
  job.queue = "q";
  job.ttl_after_finished_ms = 5000;
  const Plan plan = render_plan(job);
  CHECK(document(plan, "job.yaml").is_null());
  CHECK(document(plan, "launcher.yaml").is_null());
  const nlohmann::json set = document(plan, "jobset.json");
  CHECK(set["metadata"]["name"] == "mnist");
  CHECK(set["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "q");
  const nlohmann::json spec = set["spec"];
  CHECK(spec["suspend"] == true);
  CHECK(spec["ttlSecondsAfterFinished"] == 5);
  CHECK(spec["failurePolicy"]["maxRestarts"] == 3);
  CHECK(spec["successPolicy"]["targetReplicatedJobs"] == nlohmann::json::array({"launcher"}));
  CHECK(spec["replicatedJobs"].size() == 2);
  for (const auto& part : spec["replicatedJobs"]) {
    const nlohmann::json own = part["template"];
    CHECK(!own["metadata"].contains("name"));
    CHECK(own["spec"]["backoffLimitPerIndex"] == 0);
    CHECK(!own["spec"].contains("suspend"));
    CHECK(!own["spec"].contains("ttlSecondsAfterFinished"));
    CHECK(own["spec"]["template"]["spec"]["containers"][0]["env"][1]["valueFrom"]["fieldRef"]
             ["fieldPath"] == "metadata.labels['jobset.sigs.k8s.io/restart-attempt']");
  }
  CHECK(gang_of(job).launcher_hosts.at(1) == "mnist-worker-0-1.mnist");
  CHECK(gang_of(job).ranks.at(0).host == "mnist-launcher-0-0.mnist");
}

TEST_CASE("a TrainJob's runtime has the JobSet as its template") {
  JobSpec job = job_of(2, {"true"});
  job.queue = "q";
  own::api(job) = "jobset";
  const nlohmann::json set = document(render_plan(job), "jobset.json");
  own::api(job) = "trainjob";
  const Plan plan = render_plan(job);
  CHECK(document(plan, "jobset.json").is_null());
  const nlohmann::json trainjob = document(plan, "trainjob.json");
  CHECK(trainjob["spec"]["runtimeRef"]["name"] == "mnist");
  CHECK(trainjob["spec"]["suspend"] == true);
  CHECK(trainjob["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "q");
  const nlohmann::json runtime = document(plan, "trainingruntime.json");
  CHECK(runtime["spec"]["mlPolicy"]["numNodes"] == 2);
  nlohmann::json part = runtime["spec"]["template"];
  CHECK(part["metadata"]["labels"]["dtrain/job"] == "mnist");
  CHECK(!part["metadata"]["labels"].contains("kueue.x-k8s.io/queue-name"));
  CHECK(part["metadata"]["annotations"]["dtrain/queue"] == "q");
  CHECK(!part["spec"].contains("suspend"));
  nlohmann::json& labels = part["spec"]["replicatedJobs"][0]["template"]["metadata"]["labels"];
  CHECK(labels["trainer.kubeflow.org/trainjob-ancestor-step"] == "trainer");
  labels.erase("trainer.kubeflow.org/trainjob-ancestor-step");
  CHECK(part["spec"]["replicatedJobs"] == set["spec"]["replicatedJobs"]);
  CHECK(set_to_be(trainjob, runtime)["spec"]["suspend"] == true);
  job.ttl_after_finished_ms = 5000;
  CHECK_THROWS_AS(render_plan(job), UsageError);
}

TEST_CASE("a disruption is no failure, and with restarts a lost node's rank comes back") {
  JobSpec job = job_of(2, {"true"});
  nlohmann::json spec = document(render_plan(job), "job.yaml")["spec"];
  CHECK(spec["podFailurePolicy"]["rules"][0]["action"] == "Ignore");
  CHECK(spec["backoffLimitPerIndex"] == 0);
  job.max_restarts = 3;
  spec = document(render_plan(job), "job.yaml")["spec"];
  CHECK(!spec.contains("podFailurePolicy"));
  CHECK(spec["podReplacementPolicy"] == "TerminatingOrFailed");
  CHECK(spec["backoffLimitPerIndex"] == 3);
}

TEST_CASE("what Kubernetes would not take is refused before it is asked") {
  JobSpec job = job_of(100, {"true"});
  job.image.clear();
  CHECK(error_of(job).starts_with("--image is needed"));
  job.image = "i";
  job.name = std::string(60, 'a');
  CHECK(error_of(job).find("at most 53 characters") != std::string::npos);
  job.name = "3d";
  CHECK(error_of(job).find("begin with a letter") != std::string::npos);
  job.name = "j";
  own::tolerations(job) = {"a:Sometimes"};
  CHECK(error_of(job).starts_with("--toleration=a:Sometimes"));
  own::tolerations(job).clear();
  job.data = {"claim"};
  CHECK(error_of(job).starts_with("--data=claim: must be NAME:/PATH"));
}
