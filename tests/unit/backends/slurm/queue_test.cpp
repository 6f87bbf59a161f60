#include "backends/slurm/queue.h"

#include <doctest/doctest.h>

#include <fmt/format.h>

#include <vector>

using namespace dtrain;
using namespace dtrain::slurm;

TEST_CASE("A line of squeue's is read, whatever its comment holds") {
  // As Slurm 22.05.8 printed them.
  const auto jobs = read_queue(
      "1|RUNNING|None|1795369816|1795369817|1826905817|node1|batch|dtrain default/t x=1|2\n"
      "2|PENDING|Resources|1795369820|N/A|N/A||batch|dtrain team-a/u\n");
  REQUIRE(jobs.size() == 2);
  CHECK(jobs[0].id == "1");
  CHECK(jobs[0].state == "RUNNING");
  CHECK(jobs[0].reason.empty());
  CHECK(jobs[0].submitted == 1795369816'000'000'000);
  CHECK(jobs[0].starts == 1795369817'000'000'000);
  CHECK(jobs[0].nodes == "node1");
  CHECK(jobs[0].partition == "batch");
  CHECK(jobs[0].comment == "dtrain default/t x=1|2");
  CHECK(jobs[0].ends == 1826905817'000'000'000);
  CHECK(jobs[1].starts == 0);
  CHECK(jobs[1].ends == 0);
  CHECK(jobs[1].reason == "Resources");
}

TEST_CASE("A line of sacct's is one of squeue's") {
  // As sacct of Slurm 22.05.8 printed them; no other version's is recorded.
  const auto jobs =
      read_queue("3|CANCELLED by 0|0:0|1795400106|1795400106|1795400109|node[1-2]|batch|\n"
                 "4|CANCELLED by 0|0:0|1795400106|None|1795400109|None assigned|batch|\n"
                 "5|TIMEOUT|0:0|1795400106|1795400106|1795400174|node1|batch|\n"
                 "6|FAILED|0:9|1795400106|1795400106|1795400106|node1|batch|\n"
                 "7|FAILED|5:0|1795400106|1795400106|1795400106|node1|batch|\n");
  REQUIRE(jobs.size() == 5);
  CHECK(jobs[0].id == "3");
  CHECK(jobs[0].state == "CANCELLED");
  CHECK(jobs[0].reason.empty());
  CHECK(jobs[0].starts == 1795400106'000'000'000);
  CHECK(jobs[0].ends == 1795400109'000'000'000);
  CHECK(jobs[0].nodes == "node[1-2]");
  CHECK(jobs[1].starts == 0);
  CHECK(jobs[1].nodes.empty());
  CHECK(jobs[2].state == "TIMEOUT");
  CHECK(jobs[3].signal == 9);
  CHECK_FALSE(jobs[3].exit_code);
  CHECK(jobs[4].exit_code == 5);
  CHECK_FALSE(jobs[4].signal);
}

TEST_CASE("What is no line of squeue's is left out") {
  CHECK(read_queue("").empty());
  CHECK(read_queue("\n\nslurm_load_jobs error: Invalid job id specified\n").empty());
  CHECK(read_queue("1|RUNNING|None|1|2|3|node1|batch\n").empty());
  CHECK(read_queue("1|RUNNING|None|1|2|3|node1|batch|").size() == 1);
}

TEST_CASE("States of Slurm's end a job only where Slurm has ended it") {
  const auto phase = [](std::string_view name) { return state_of(name).phase; };
  CHECK(phase("PENDING") == Phase::pending);
  CHECK(phase("CONFIGURING") == Phase::pending);
  CHECK(phase("RUNNING") == Phase::running);
  CHECK(phase("COMPLETING") == Phase::running);
  CHECK(phase("COMPLETED") == Phase::succeeded);
  CHECK(phase("REQUEUED") == Phase::pending);
  CHECK(phase("EXPEDITING") == Phase::pending); // From 25.11 on.
  CHECK(phase("SUSPENDED") == Phase::suspended);
  for (const char* name : {"FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY",
                           "PREEMPTED", "BOOT_FAIL", "DEADLINE"}) {
    CAPTURE(name);
    CHECK(phase(name) == Phase::failed);
  }
  CHECK(phase("A_STATE_OF_NEXT_YEAR") == Phase::running);
}

TEST_CASE("A reason is said in words, with Slurm's own") {
  const auto text = [](const char* reason) { return reason_text(reason); };
  CHECK(text("") == "");
  CHECK(text("Resources") == "waits for nodes to become free (Resources)");
  CHECK(text("ReqNodeNotAvail, UnavailableNodes:node3") ==
        "nodes that it needs are down, drained or reserved (ReqNodeNotAvail, "
        "UnavailableNodes:node3)");
  CHECK(text("QOSMaxGRESPerUser") == "a limit of its QOS is reached (QOSMaxGRESPerUser)");
  CHECK(text("AssocGrpCpuLimit") == "a limit of its account is reached (AssocGrpCpuLimit)");
  CHECK(text("MaxGRESPerAccount") == "a limit of its account is reached (MaxGRESPerAccount)");
  CHECK(text("MaxCpuRunMinsPerUser") == "a limit of its user is reached (MaxCpuRunMinsPerUser)");
  CHECK(text("SomethingNew") == "SomethingNew");
}

TEST_CASE("Each reason that Slurm documents for a job that waits has words") {
  // Of its page job_reason_codes, at commit 0c9a3f7 of its sources; of each kind of limit one.
  for (const char* reason : {"AccountNotAllowed",
                             "AccountingPolicy",
                             "AssocGrpGRES",
                             "AssocMaxJobsLimit",
                             "AssociationJobLimit",
                             "BadConstraints",
                             "BeginTime",
                             "BurstBufferOperation",
                             "BurstBufferResources",
                             "BurstBufferStageIn",
                             "Cleaning",
                             "Constraints",
                             "DeadLine",
                             "Dependency",
                             "DependencyNeverSatisfied",
                             "FedJobLock",
                             "InvalidAccount",
                             "InvalidQOS",
                             "JobArrayTaskLimit",
                             "JobHeldAdmin",
                             "JobHeldUser",
                             "JobHoldMaxRequeue",
                             "JobLaunchFailure",
                             "Licenses",
                             "MaxGRESPerAccount",
                             "MaxMemPerLimit",
                             "NodeDown",
                             "PartitionConfig",
                             "PartitionDown",
                             "PartitionInactive",
                             "PartitionNodeLimit",
                             "PartitionTimeLimit",
                             "Priority",
                             "Prolog",
                             "QOSGrpNodeLimit",
                             "QOSJobLimit",
                             "QOSMaxWallDurationPerJobLimit",
                             "QOSMinGRES",
                             "QOSNotAllowed",
                             "ReqNodeNotAvail",
                             "Reservation",
                             "ReservationDeleted",
                             "Resources",
                             "SchedDefer",
                             "SystemFailure"}) {
    CAPTURE(reason);
    CHECK(reason_text(reason).ends_with(fmt::format(" ({})", reason)));
  }
  CHECK(reason_text("QOSMinGRES") == "asks for less than its QOS requires (QOSMinGRES)");
}
