#include "backends/local/local_plan.h"

#include "backends/supervised/gang/plan_text.h"

#include "submit/errors.h"

#include <doctest/doctest.h>

#include <array>

namespace dtrain {
namespace {

JobSpec example_job() {
  JobSpec job;
  job.name = "train";
  job.workers = 2;
  job.command = {"python3", "train.py"};
  return job;
}

constexpr const char* k_code_dir = "/state/train/code";

const GangSite k_machine = [] {
  GangSite site;
  site.working_dir = "/work";
  site.trainer = "/opt/bin/dtrain-trainer";
  return site;
}();

Plan rendered(const JobSpec& job, const GangSite& machine = k_machine) {
  return render_local_plan(job, machine, {.devices = {"0", "1", "2", "3"}}, k_code_dir);
}

GangPlan carried_out(const JobSpec& job, const GangSite& machine = k_machine) {
  return read_gang_plan(rendered(job, machine).documents.at(0).text);
}

TEST_CASE("arguments and environment arrive byte-exact") {
  auto job = example_job();
  job.command = {"run",   "",        "it's",          "a \"b\"",      "$HOME `x`", "# no comment",
                 "{{x}}", "{{{y}}}", "line\nbreak\n", "\ttab\r",      "a: b",      "- x",
                 "~",     "null",    "0x10",          "\xff\xfe\x80", "é漢😀",      "\x01\x7f",
                 " lead", "trail ",  "\\n",           "%s",           "no",        "1e3"};
  job.env = {"A=", "B=x=y", "C=\xc3\x28", "D=a\nb", "E= {{z}} "};
  const auto plan = carried_out(job);
  CHECK(plan.command == job.command);
  CHECK(plan.env ==
        EnvVars{{"A", ""}, {"B", "x=y"}, {"C", "\xc3\x28"}, {"D", "a\nb"}, {"E", " {{z}} "}});
}

TEST_CASE("a plan has the job's settings") {
  auto job = example_job();
  job.max_restarts = 3;
  job.grace_period_ms = 250;
  job.priority = "high";
  job.log_limit = "1.5Gi";
  const auto plan = carried_out(job);
  CHECK(plan.job.name == "train");
  CHECK(plan.job.namespace_name == "default");
  CHECK(plan.max_restarts == 3);
  CHECK(plan.grace_period_ms == 250);
  CHECK(plan.log_limit == 1'610'612'736);
  CHECK(carried_out(example_job()).log_limit == 0);
  CHECK(plan.priority == "high");
  CHECK(plan.working_dir == "/work");
  REQUIRE(plan.ranks.size() == 2);
  CHECK(plan.ranks[1].instance == "worker-1");
  CHECK(!plan.ranks[1].devices);
}

TEST_CASE("rendering is pure: the same job gives the same bytes") {
  CHECK(rendered(example_job()).documents.at(0).text ==
        rendered(example_job()).documents.at(0).text);
}

TEST_CASE("no command, or flags alone, is the bundled trainer's") {
  auto job = example_job();
  job.command = {"--epochs=2"};
  CHECK(carried_out(job).command ==
        std::vector<std::string>{"/opt/bin/dtrain-trainer", "--epochs=2"});
  auto machine = k_machine;
  machine.trainer.clear();
  CHECK_THROWS_WITH_AS(rendered(job, machine), doctest::Contains("DTRAIN_TRAINER"), Error);
}

TEST_CASE("workers get GPUs of their own, and too few is a notice, or an error where required") {
  auto job = example_job();
  job.gpus = 2;
  const auto plan = carried_out(job);
  CHECK(plan.ranks[0].devices == "0,1");
  CHECK(plan.ranks[1].devices == "2,3");
  CHECK(plan.gpu_view == GpuView::rank);
  CHECK(plan.ranks[0].gpus_allocated() == 2);

  job.gpus = 3;
  const auto lacking = rendered(job);
  REQUIRE(lacking.notices.size() == 1);
  CHECK(lacking.notices[0] == "the job asks for 6 GPUs (3 per worker), and this machine has 4: "
                              "running on the CPU (--require-gpus makes this an error)");
  const auto on_cpu = read_gang_plan(lacking.documents.at(0).text);
  CHECK(on_cpu.ranks[0].devices == "");
  CHECK(on_cpu.ranks[0].gpus == 3);
  CHECK(on_cpu.ranks[0].gpus_allocated() == 0);
  job.require_gpus = true;
  CHECK_THROWS_AS(rendered(job), EngineError);
}

TEST_CASE("a tfjob's roles are instances of their own, ranks first, and the chief decides") {
  auto job = example_job();
  job.type = "tfjob";
  job.ps = 2;
  job.chief = true;
  job.evaluator = true;
  job.gpus = 1;
  job.role_sequence = "PS,Worker";
  const auto plan = carried_out(resolve(job));
  std::vector<std::string> names;
  for (const auto& rank : plan.ranks) {
    names.push_back(rank.instance + (rank.decides ? "!" : "") + " " + rank.devices.value_or("-"));
  }
  CHECK(names == std::vector<std::string>{"chief-0! 0", "worker-0 1", "worker-1 2", "ps-0 ",
                                          "ps-1 ", "evaluator-0 3"});
  CHECK(plan.trainer == "TFJOB");
  CHECK(plan.start_order == std::vector<std::string>{"ps", "worker", "chief", "evaluator"});
  job.success_policy = "ChiefWorker";
  CHECK(!carried_out(resolve(job)).ranks[1].decides);
  job.clean_task_policy = "None";
  CHECK(!carried_out(resolve(job)).clean_tasks);
}

TEST_CASE("a pytorchjob's first worker is its master") {
  auto job = example_job();
  job.type = "pytorchjob";
  job.nproc_per_node = "2";
  const auto plan = carried_out(resolve(job));
  REQUIRE(plan.ranks.size() == 2);
  CHECK(plan.ranks[0].instance == "master-0");
  CHECK(plan.ranks[1].instance == "worker-0");
  CHECK(plan.torchrun_processes == "2");
}

TEST_CASE("a launcher alone is started, with the GPUs and slots of its workers") {
  auto job = example_job();
  job.type = "etjob";
  job.gpus = 2;
  const auto plan = carried_out(resolve(job));
  REQUIRE(plan.ranks.size() == 1);
  CHECK(plan.ranks[0].instance == "launcher-0");
  CHECK(plan.ranks[0].devices == "0,1,2,3");
  CHECK(plan.launcher_slots == 4);
}

TEST_CASE("a secret's name is in the plan and its value is not") {
  auto machine = k_machine;
  machine.secret_env = {"TOKEN=t0ken"};
  const auto plan = rendered(example_job(), machine);
  CHECK(plan.documents.at(0).text.find("TOKEN=***") != std::string::npos);
  CHECK(plan.documents.at(0).text.find("t0ken") == std::string::npos);
  CHECK(plan.secret_env == machine.secret_env);
}

TEST_CASE("TensorBoard is an instance that decides nothing, where there is one") {
  auto job = example_job();
  job.tensorboard = true;
  CHECK(rendered(job).notices.size() == 1);
  auto machine = k_machine;
  machine.tensorboard = "/usr/bin/tensorboard";
  const auto plan = carried_out(job, machine);
  REQUIRE(plan.ranks.size() == 3);
  CHECK(plan.ranks[2].instance == "tensorboard-0");
  CHECK(!plan.ranks[2].decides);
  CHECK(plan.ranks[2].command == std::vector<std::string>{"/usr/bin/tensorboard",
                                                          "--logdir=/training_logs",
                                                          "--host=localhost"});
}

TEST_CASE("folders and files are mounted, at the same path or another") {
  auto job = example_job();
  job.data_dirs = {"/mnt/a:/data:ro", "/mnt/b"};
  job.config_files = {"/etc/x:/etc/y"};
  const auto plan = carried_out(job);
  REQUIRE(plan.mounts.size() == 3);
  CHECK(plan.mounts[0].source == "/mnt/a");
  CHECK(plan.mounts[0].target == "/data");
  CHECK(plan.mounts[0].read_only);
  CHECK(plan.mounts[1].target == "/mnt/b");
  CHECK(plan.mounts[2].target == "/etc/y");
}

TEST_CASE("a plan that is none is refused") {
  CHECK_THROWS_AS(read_gang_plan(""), EngineError);
  CHECK_THROWS_AS(read_gang_plan("name: [\n"), EngineError);
  CHECK_THROWS_WITH_AS(read_gang_plan("name: x\n"), doctest::Contains("namespace"), EngineError);
}

} // namespace
} // namespace dtrain
