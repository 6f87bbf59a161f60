#include "backends/batch/record.h"

#include "backends/batch/job_line.h"
#include "backends/batch/status.h"
#include "backends/slurm/queue.h"
#include "backends/slurm/system.h"
#include "submit/job_spec.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

using namespace dtrain;
using namespace dtrain::batch;

namespace {

JobSpec three_workers() {
  JobSpec job;
  job.name = "mnist";
  job.workers = 3;
  job.gpus = 2;
  job.max_restarts = 1;
  return job;
}

/// The record of a job whose script wrote `lines`.
JobRecord record_of(const std::string& lines) {
  const auto records =
      read_records(write_job_line(three_workers(), {.may_requeue = true}, "12", 5) + lines);
  REQUIRE(records.size() == 1);
  return records.at("default/mnist");
}

/// As Slurm, the queue that there is, says it.
QueuedJob queued(const std::string& state, const std::string& reason = "",
                 const std::string& starts = "N/A", const std::string& ends = "N/A",
                 const std::string& nodes = "") {
  return slurm::read_queue("12|" + state + "|" + reason + "|N/A|" + starts + "|" + ends + "|" +
                           nodes + "|batch|")
      .at(0);
}

Queue queue_of(const char* text) { return Queue(slurm::read_queue(text)); }

JobStatus status_of(const JobRecord& record, const QueuedJob* job) {
  return batch::status_of(record, job, slurm::queue_system());
}

JobStatus status_of(const JobRecord& record, const Queue& queue) {
  return batch::status_of(record, queue, slurm::queue_system());
}

} // namespace

TEST_CASE("A job that Slurm has not started is pending, with its reason") {
  const QueuedJob waits = queued("PENDING", "Resources");
  const JobStatus status = status_of(record_of(""), &waits);
  CHECK(status.phase == Phase::pending);
  CHECK(status.reason == "waits for nodes to become free (Resources)");
  CHECK(status.uid == "12");
  CHECK(status.created == 5);
  CHECK(status.gpus_requested == 6);
  CHECK(status.instances.size() == 3);
  CHECK(status.instances[0].is_chief);
  CHECK_FALSE(status.instances[1].is_chief);
  for (const char* reason : {"JobHeldUser", "JobHeldAdmin", "JobHoldMaxRequeue",
                             "job requeued in held state", "launch failed requeued held"}) {
    CAPTURE(reason);
    const QueuedJob held = queued("PENDING", reason);
    CHECK(status_of(record_of(""), &held).phase == Phase::suspended);
  }
}

TEST_CASE("A job whose script reported nothing says what to look at") {
  // As Slurm 22.05.8 says of it.
  QueuedJob ended = queued("FAILED", "JobLaunchFailure", "N/A", "N/A", "node1");
  JobStatus status = status_of(record_of(""), &ended);
  CHECK(status.phase == Phase::failed);
  CHECK(status.reason.find("on node1 (JobLaunchFailure): the nodes must share") !=
        std::string::npos);
  REQUIRE(status.cause);
  CHECK(status.cause->message == status.reason);
  ended = queued("COMPLETED"); // As a later one, which made the folder on the node.
  status = status_of(record_of(""), &ended);
  CHECK(status.phase == Phase::succeeded);
  CHECK(status.reason.find("the nodes must share") != std::string::npos);
  CHECK(status_of(record_of("run default mnist 0 10 12\n"), &ended).reason.empty());
  ended = queued("FAILED", "5:0");
  CHECK(status_of(record_of(""), &ended).cause->message == "exit code 5");
}

TEST_CASE("A job runs once all of its ranks do") {
  const QueuedJob runs = queued("RUNNING");
  const std::string two = "run default mnist 0 10 12\nstart worker-0 node1 100 11\n"
                          "start worker-1 node1 101 11\n";
  CHECK(status_of(record_of(two), &runs).phase == Phase::pending);
  const JobStatus status =
      status_of(record_of(two + "start worker-2 node2 7 12\nup default mnist 0 13\n"), &runs);
  CHECK(status.phase == Phase::running);
  CHECK(status.started == 10);
  CHECK(status.gpus_allocated == 6);
  CHECK(status.node == "node1");
  CHECK(status.instances[2].node == "node2");
  CHECK(status.instances[2].pid == 7);
  CHECK(status.instances[2].started == 12);
}

TEST_CASE("The rank that failed first is the cause, and not those that srun ended for it") {
  const std::string ended =
      "run default mnist 0 10 12\nend default mnist 0 20 1\nrun default mnist 1 30 12\n"
      "end default mnist 1 44 7\nstart worker-0 node1 100 31\nstart worker-1 node2 100 31\n"
      "start worker-2 node2 101 31\nexit worker-0 42 143\nexit worker-1 41 7\n";
  const JobStatus status = status_of(record_of(ended), nullptr);
  CHECK(status.phase == Phase::failed);
  CHECK(status.restarts == 1);
  CHECK(status.ended == 44);
  REQUIRE(status.cause);
  CHECK(status.cause->instance == "worker-1");
  CHECK(status.cause->rank == 1);
  CHECK(status.cause->node == "node2");
  CHECK(status.cause->exit_code == 7);
  CHECK(status.instances[0].phase == Phase::terminated);
  CHECK(status.instances[1].phase == Phase::failed);
  CHECK(status.instances[2].phase == Phase::terminated);
}

TEST_CASE("The rank that the script saw fail first is the cause, whatever clocks and codes say") {
  const JobStatus status =
      status_of(record_of("run default mnist 0 5 12 node1\nend default mnist 0 6 1\n"
                          "run default mnist 1 10 12 node1\nup default mnist 1 15 node2\n"
                          "first default mnist 1 41 worker-1 137\nend default mnist 1 44 137\n"
                          "start worker-0 node2 100 31\nstart worker-1 node1 100 31\n"
                          "start worker-2 node1 101 31\nexit worker-0 40 1\nexit worker-1 41 137\n"
                          "exit worker-2 39 3 told\n"),
                nullptr);
  REQUIRE(status.cause);
  CHECK(status.cause->message == "worker-1 (rank 1) on node1 ended with signal 9 (SIGKILL)");
  CHECK(status.reason == status.cause->message);
  CHECK(status.instances[2].phase == Phase::terminated);
  CHECK(status.node == "node2");
}

TEST_CASE("A list, which has no ranks' files, knows the node of the first rank") {
  CHECK(status_of(record_of("run default mnist 0 10 12 node1\nend default mnist 0 20 0\n"), nullptr)
            .node == "node1");
}

TEST_CASE("A job that waits says why, whether Slurm does or not") {
  for (const char* state : {"PENDING", "REQUEUED", "CONFIGURING", "RUNNING"}) {
    CAPTURE(state);
    const QueuedJob waits = queued(state);
    CHECK(!status_of(record_of(""), &waits).reason.empty());
  }
}

TEST_CASE("A job whose run failed goes on while it may be restarted") {
  const QueuedJob runs = queued("RUNNING");
  const JobRecord record = record_of("run default mnist 0 10 12\nend default mnist 0 20 1\n");
  CHECK_FALSE(record.has_ended());
  CHECK_FALSE(is_final(status_of(record, &runs).phase));
}

TEST_CASE("What Slurm did to a job is its cause, not the ranks' ends that follow from it") {
  const QueuedJob late = queued("TIMEOUT", "TimeLimit");
  const JobStatus status = status_of(
      record_of("run default mnist 0 10 12\nstart worker-0 node1 100 11\nexit worker-0 30 143\n"),
      &late);
  CHECK(status.phase == Phase::failed);
  REQUIRE(status.cause);
  CHECK(status.cause->instance.empty());
  CHECK(status.reason == "reached its time limit");
}

TEST_CASE(
    "A job that Slurm is ending at its time limit has ended for it, once its script has ended") {
  const QueuedJob ending = queued("COMPLETING", "TimeLimit");
  const std::string began = "run default mnist 0 5 12\nend default mnist 0 6 1\n"
                            "run default mnist 1 10 12\nup default mnist 1 11 node1\n"
                            "start worker-0 node1 100 11\n";
  CHECK(status_of(record_of(began), &ending).phase == Phase::running);
  auto record = record_of(began + "exit worker-0 30 143\nend default mnist 1 31 143\n");
  CHECK(status_of(record, &ending).phase == Phase::running); // It may be queued once more.
  record.may_requeue = false;
  const JobStatus status = status_of(record, &ending);
  CHECK(status.phase == Phase::failed);
  CHECK(status.reason == "reached its time limit");
}

TEST_CASE("A job that Slurm has forgotten stands as its script left it") {
  const JobStatus status = status_of(
      record_of("run default mnist 0 10 12\nstart worker-0 node1 100 11\nexit worker-0 19 0\n"
                "end default mnist 0 20 0\n"),
      nullptr);
  CHECK(status.phase == Phase::succeeded);
  CHECK(status.ended == 20);
  const JobStatus lost = status_of(record_of("run default mnist 0 10 12\n"), nullptr);
  CHECK(lost.phase == Phase::failed);
  CHECK(lost.reason.find(
            "Slurm has no record of this job and it never reported an end (try sacct -j 12)") !=
        std::string::npos);
  CHECK(lost.ended == 0);
  const JobStatus ranks_left = status_of(
      record_of("run default mnist 0 10 12\nstart worker-0 node1 100 11\nexit worker-0 19 143\n"),
      nullptr);
  CHECK(ranks_left.ended == 19);
}

TEST_CASE("A job that left no end ended when Slurm says it did") {
  const QueuedJob cancelled = queued("CANCELLED", "", "N/A", "30");
  const JobStatus status = status_of(record_of("run default mnist 0 10 12\n"), &cancelled);
  CHECK(status.ended == 30 * k_second);
  CHECK(status.reason == "cancelled in Slurm (scancel)");
}

TEST_CASE("A job that waits has Slurm's estimate of its start") {
  const QueuedJob waits = queued("PENDING", "", "40");
  CHECK(status_of(record_of(""), &waits).starts == 40 * k_second);
  const QueuedJob runs = queued("RUNNING", "", "40");
  CHECK(status_of(record_of("run default mnist 0 10 12\n"), &runs).starts == 0);
}

TEST_CASE("Damaged lines are left out, and so are those of other jobs") {
  const std::string damaged =
      "job {\njob 5\njob {\"id\": 3}\nrun default other 9 1 1\nstart worker-0 node1 1 1\n";
  CHECK(read_records(damaged).empty());
  CHECK(record_of("end default mnist\nrun\n\nstart\nrun default other 9 1 1\n").run.number == -1);
}

TEST_CASE("The exit code of a job whose ranks left no word is what Slurm's accounting says") {
  QueuedJob forgotten = queued("FAILED", "5:0", "10", "20", "node1");
  const JobStatus status = status_of(record_of(""), &forgotten);
  REQUIRE(status.cause);
  CHECK(status.cause->exit_code == 5);
  CHECK(status.cause->message == "exit code 5");
  CHECK(status.started == 10 * k_second);
  CHECK(status.ended == 20 * k_second);
  forgotten = queued("FAILED", "0:9");
  CHECK(status_of(record_of(""), &forgotten).cause->message == "signal 9 (SIGKILL)");
}

namespace {

/// The record of an array of three tasks of two ranks each, whose scripts wrote `lines`.
JobRecord array_of(const std::string& lines) {
  JobSpec job = three_workers();
  job.workers = 2;
  return read_records(write_job_line(job, {.array = "0-2"}, "12", 5) + lines).at("default/mnist");
}

} // namespace

TEST_CASE("An array's tasks have runs and ranks of their own") {
  const JobRecord record = array_of("run default 0/mnist 0 10 13\nup default 0/mnist 0 12\n"
                                    "run default 2/mnist 0 20 14\nend default 2/mnist 0 30 7\n"
                                    "run default 2/mnist 1 31 14\nend default 2/mnist 1 40 7\n"
                                    "start 0/worker-1 node1 100 11\nstart 2/worker-0 node2 101 32\n"
                                    "exit 2/worker-0 39 7\n");
  CHECK(record.instance_names() == std::vector<std::string>{"0/worker-0", "0/worker-1",
                                                            "1/worker-0", "1/worker-1",
                                                            "2/worker-0", "2/worker-1"});
  CHECK(record.files_of("2/worker-1") == "2/1/worker-1");
  CHECK(record.files_of("1/worker-0") == "1/0/worker-0");
  CHECK(record.part_of("2/worker-0").raw_id == "14");
  const JobStatus status =
      status_of(record, queue_of("12_0|RUNNING|None|1|2|3|node1|batch|dtrain default/mnist\n"
                                 "12_[1]|PENDING|Resources|1|N/A|N/A||b|dtrain default/mnist"));
  CHECK(status.phase == Phase::running);
  CHECK(status.uid == "12");
  CHECK(status.gpus_requested == 3 * 2 * 2);
  CHECK(status.gpus_allocated == 2);
  CHECK(status.started == 10);
  CHECK(status.ended == 0);
  CHECK_FALSE(status.cause);
  CHECK(status.reason == "tasks: 1 running, 1 waiting, 1 failed; the next: waits for nodes to "
                         "become free (Resources)");
  REQUIRE(status.instances.size() == 6);
  CHECK(status.instances[1].name == "0/worker-1");
  CHECK(status.instances[1].node == "node1");
  CHECK(status.instances[4].exit_code == 7);
}

TEST_CASE("An array has failed once all of its tasks have ended and one of them failed") {
  const std::string ends = "run default 0/mnist 0 10 13\nend default 0/mnist 0 20 0\n"
                           "run default 1/mnist 0 10 14\nend default 1/mnist 0 30 0\n"
                           "run default 2/mnist 0 11 15\nend default 2/mnist 0 12 7\n"
                           "run default 2/mnist 1 13 15\n";
  CHECK(status_of(array_of(ends), queue_of("12_2|RUNNING|None|1|2|3|n|b|dtrain default/mnist"))
            .phase == Phase::pending);
  const JobStatus status = status_of(
      array_of(ends +
               "end default 2/mnist 1 25 7\nstart 2/worker-1 n 1 14\nexit 2/worker-1 24 7\n"),
      queue_of(""));
  CHECK(status.phase == Phase::failed);
  CHECK(status.ended == 30);
  REQUIRE(status.cause);
  CHECK(status.cause->instance == "2/worker-1");
  CHECK(status.cause->rank == 1);
  CHECK(status.cause->exit_code == 7);
  CHECK(status.reason == "tasks: 2 succeeded, 1 failed");
}

TEST_CASE("A job that never started and that Slurm has no record of was cancelled") {
  const JobStatus status = status_of(record_of(""), nullptr);
  CHECK(status.phase == Phase::failed);
  CHECK(status.reason.find("it was probably cancelled") != std::string::npos);
}
