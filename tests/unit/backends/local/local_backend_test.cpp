// The local backend whole, with small real processes. The supervisor runs in a fork of the test
// instead of in `dtrain supervise`; all else is as it ships.
#include "backends/local/local_backend.h"

#include "../temporary_folder.h"
#include "backends/supervised/gang/backoff.h"
#include "backends/support/os/files.h"
#include "backends/support/os/process.h"
#include "submit/errors.h"
#include "submit/options/duration.h"
#include "tests/unit/variable.h"

#include <sys/stat.h>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <fcntl.h>
#include <signal.h>

#include <algorithm>
#include <chrono>

namespace dtrain {
namespace {

using Clock = std::chrono::steady_clock;
using Lines = std::vector<std::string>;

struct Fixture {
  test::TemporaryFolder folder;
  JobStore store{folder / "dtrain", "local"};
  LocalBackend backend{store.root(), [](const Lines& args) { _exit(supervise_here(args)); }};
  JobRef job{"default", "train"};
  JobSpec spec = [] {
    JobSpec made;
    made.name = "train";
    made.grace_period_ms = 100;
    return made;
  }();

  void submit(const std::string& script, int workers = 1) {
    spec.command = {"sh", "-c", script};
    spec.workers = workers;
    backend.submit(backend.plan(spec, {}), {});
  }

  JobStatus wait() {
    JobStatus last;
    backend.watch(job, [&](const JobStatus& status) {
      last = status;
      return true;
    });
    return last;
  }

  /// Ends when every rank has printed `line`.
  void wait_for_line(const std::string& line, int ranks) {
    backend.logs(job, {.instance = "", .follow = true}, [&](const LogLine& found) {
      ranks -= found.text == line ? 1 : 0;
      return ranks > 0;
    });
    REQUIRE(ranks == 0);
  }

  Lines lines(const LogQuery& query = {}) {
    Lines found;
    backend.logs(job, query, [&](const LogLine& line) {
      found.push_back(fmt::format("{} {}{}", line.instance, line.is_stderr ? "E " : "", line.text));
      return true;
    });
    return found;
  }

  JobRecord record() { return store.open(job)->record().value(); }

  /// The job's processes that are left, by what marks them.
  std::size_t processes_left(const std::string& uid) {
    return processes_with_environment("DTRAIN_JOB_UID=" + uid).size();
  }
};

/// A rank that leaves its session, ignores TERM and would stay for ever.
constexpr const char* k_daemon = "(setsid sh -c 'trap \"\" TERM; echo up; while :; do sleep 1000; "
                                 "done' &) ; ";

TEST_CASE_FIXTURE(Fixture, "a plan has the paths and files of the job as they are here") {
  spec.command = {"true"};
  spec.data_dirs = {"data:/data:ro"};
  spec.env_files = {folder.write("environment", "TOKEN=x\n")};
  const auto plan = backend.plan(spec, {});
  const auto here = std::filesystem::current_path().string();
  CHECK(plan.job.working_dir == here);
  CHECK(plan.job.data_dirs == Lines{here + "/data:/data:ro"});
  CHECK(plan.secret_env == Lines{"TOKEN=x"});
  CHECK(backend.plan(plan.job, {}).documents.at(0).text == plan.documents.at(0).text);
  spec.env_files = {"/no/such/file"};
  CHECK_THROWS_AS(backend.plan(spec, {}), UsageError);
}

TEST_CASE_FIXTURE(Fixture,
                  "of two plans with the same free GPU one is submitted, the other stale") {
  const auto registry = folder / "gpus";
  const unit::Variable claims("DTRAIN_GPU_CLAIMS", registry.c_str());
  const unit::Variable visible("CUDA_VISIBLE_DEVICES", nullptr);
  const unit::Variable count("DTRAIN_LOCAL_GPUS", "2");
  spec.gpus = 1;
  spec.check_gpus = "off";
  spec.command = {"sleep", "1000"};
  const auto first = backend.plan(spec, {});
  spec.name = "other";
  const auto stale = backend.plan(spec, {});
  backend.submit(first, {});
  CHECK_THROWS_AS(backend.submit(stale, {}), StalePlan);
  CHECK(backend.list({}).size() == 1);
  const auto second = backend.plan(spec, {});
  CHECK(second.documents.at(0).text != stale.documents.at(0).text);
  backend.submit(second, {});
  backend.remove(job);
  backend.remove({"default", "other"});
}

TEST_CASE_FIXTURE(Fixture, "a job whose ranks all exit with 0 has succeeded") {
  submit("echo out $RANK $WORLD_SIZE; echo err >&2", 2);
  const auto status = wait();
  CHECK(status.phase == Phase::succeeded);
  CHECK(status.started >= status.created);
  CHECK(status.ended >= status.started);
  REQUIRE(status.instances.size() == 2);
  CHECK(status.instances[0].is_chief);
  CHECK(status.instances[1].exit_code == 0);
  auto found = lines();
  std::sort(found.begin(), found.end());
  CHECK(found == Lines{"worker-0 E err", "worker-0 out 0 2", "worker-1 E err", "worker-1 out 1 2"});
  CHECK(lines({.instance = "worker-1", .tail = 1}).size() == 1);
  CHECK_THROWS_AS(lines({.instance = "worker-2"}), NotFound);
  const auto jobs = backend.list({});
  REQUIRE(jobs.size() == 1);
  CHECK(jobs[0].phase == Phase::succeeded);
}

TEST_CASE_FIXTURE(Fixture, "the first rank to fail is the cause, and the rest is ended") {
  submit("trap '' TERM; if [ $RANK = 1 ]; then echo first >&2; printf last >&2; exit 3; fi; "
         "sleep 1000; sleep 1000",
         3);
  const auto status = wait();
  CHECK(status.phase == Phase::failed);
  REQUIRE(status.cause);
  CHECK(status.cause->instance == "worker-1");
  CHECK(status.cause->rank == 1);
  CHECK(status.cause->exit_code == 3);
  CHECK(status.cause->last_stderr == Lines{"first", "last"});
  CHECK(status.instances[0].signal.has_value());
  CHECK(processes_left(status.uid) == 0);
}

TEST_CASE_FIXTURE(Fixture, "a rank killed by a signal says which") {
  submit("kill -SEGV $$");
  const auto status = wait();
  REQUIRE(status.cause);
  CHECK(status.cause->signal == SIGSEGV);
  CHECK(status.reason.find("signal 11 (SIGSEGV)") != std::string::npos);
}

TEST_CASE_FIXTURE(Fixture, "a failed gang starts again as a whole, with its own logs and ports") {
  spec.max_restarts = 2;
  submit("echo run $DTRAIN_RESTART_COUNT; [ $RANK = 0 ] && exit 1; sleep 1000", 2);
  const auto status = wait();
  CHECK(status.phase == Phase::failed);
  CHECK(status.restarts == 2);
  CHECK(lines({.instance = "worker-0"}) == Lines{"worker-0 run 2"});
  CHECK(lines({.instance = "worker-0", .previous = true}) == Lines{"worker-0 run 1"});
}

TEST_CASE_FIXTURE(Fixture, "a gang that succeeds after a restart has succeeded") {
  spec.max_restarts = 5;
  submit("[ $DTRAIN_RESTART_COUNT = 1 ]");
  const auto status = wait();
  CHECK(status.phase == Phase::succeeded);
  CHECK(status.restarts == 1);
  CHECK(!status.cause);
}

TEST_CASE_FIXTURE(Fixture, "following sees every line of every run, to the last") {
  spec.max_restarts = 1;
  submit("i=0; while [ $i -lt 500 ]; do echo $i; i=$((i+1)); done; printf end; "
         "exit $((1 - DTRAIN_RESTART_COUNT))");
  const auto found = lines({.instance = "", .follow = true});
  // It may have begun with the second run.
  CHECK(found.size() % 501 == 0);
  CHECK(found.back() == "worker-0 end");
  CHECK(wait().phase == Phase::succeeded);
}

TEST_CASE_FIXTURE(Fixture, "daemons that ranks leave behind end with the job") {
  submit(std::string(k_daemon) + "exit 0", 2);
  const auto status = wait();
  CHECK(status.phase == Phase::succeeded);
  CHECK(processes_left(status.uid) == 0);
}

TEST_CASE_FIXTURE(Fixture, "a killed supervisor leaves no process, and the record says so") {
  submit(std::string(k_daemon) + "sleep 1000", 2);
  wait_for_line("up", 2);
  const auto before = record();
  SUBCASE("the supervisor") {
    signal_process(before.owner.supervisor, SIGKILL);
    const auto status = wait();
    CHECK(status.phase == Phase::failed);
    CHECK(status.reason == "the job's supervisor was killed by signal 9 (SIGKILL)");
    CHECK(processes_left(status.uid) == 0);
  }
  SUBCASE("its guard") {
    signal_process(before.owner.guard, SIGKILL);
    const auto status = wait();
    CHECK(status.phase == Phase::failed);
    CHECK(status.reason == "the job's guard process was killed");
    CHECK(processes_left(status.uid) == 0);
  }
  SUBCASE("both: delete finds what is left") {
    kill(before.owner.guard.pid, SIGSTOP); // So that it cannot clean up in between.
    signal_process(before.owner.supervisor, SIGKILL);
    signal_process(before.owner.guard, SIGKILL);
    const auto status = wait();
    CHECK(status.phase == Phase::failed);
    CHECK(status.reason.find("supervisor is gone") != std::string::npos);
    CHECK(backend.list({}).at(0).phase == Phase::failed);
    backend.remove(job);
    CHECK(processes_left(status.uid) == 0);
  }
}

TEST_CASE_FIXTURE(Fixture, "delete ends every process and forgets the job") {
  submit(std::string(k_daemon) + "trap '' TERM; sleep 1000; sleep 1000", 2);
  wait_for_line("up", 2);
  const auto uid = record().status.uid;
  CHECK(processes_left(uid) > 0);
  backend.remove(job);
  CHECK(processes_left(uid) == 0);
  CHECK(backend.list({}).empty());
  CHECK_THROWS_AS(backend.status(job), NotFound);
  CHECK_THROWS_AS(backend.remove(job), NotFound);
  submit("true");
  CHECK(wait().phase == Phase::succeeded);
}

TEST_CASE_FIXTURE(Fixture, "delete gets its way with a supervisor that does not answer") {
  submit("echo up; sleep 1000");
  wait_for_line("up", 1);
  const auto before = record();
  kill(before.owner.guard.pid, SIGSTOP);
  kill(before.owner.supervisor.pid, SIGSTOP);
  backend.remove(job);
  CHECK(processes_left(before.status.uid) == 0);
  CHECK(!is_running(before.owner.guard));
  CHECK(!is_running(before.owner.supervisor));
}

TEST_CASE_FIXTURE(Fixture, "a name in use is refused, also of a job that has ended") {
  submit("true");
  wait();
  CHECK_THROWS_WITH_AS(submit("true"), doctest::Contains("dtrain delete -n default train"),
                       UsageError);
  CHECK(std::filesystem::is_empty(folder / "dtrain/staging"));
}

TEST_CASE_FIXTURE(Fixture, "what cannot be run is refused before anything is started") {
  spec.command = {"no-such-program"};
  CHECK_THROWS_WITH_AS(backend.submit(backend.plan(spec, {}), {}), doctest::Contains("in PATH"),
                       UsageError);
  spec.command = {"/etc/passwd"};
  CHECK_THROWS_WITH_AS(backend.submit(backend.plan(spec, {}), {}), doctest::Contains("chmod +x"),
                       UsageError);
  spec.command = {"true"};
  spec.working_dir = "/no/such";
  CHECK_THROWS_WITH_AS(backend.submit(backend.plan(spec, {}), {}), doctest::Contains("/no/such"),
                       UsageError);
  CHECK(backend.list({}).empty());
}

TEST_CASE_FIXTURE(Fixture, "a program that goes missing later ends with 127, as in a shell") {
  const auto program = folder.write("program", "#!/no/such/interpreter\n");
  chmod(program.c_str(), 0700);
  spec.command = {program};
  backend.submit(backend.plan(spec, {}), {});
  const auto status = wait();
  REQUIRE(status.cause);
  CHECK(status.cause->exit_code == 127);
  CHECK(status.cause->last_stderr ==
        Lines{"dtrain: cannot run " + program + ": No such file or directory"});
}

TEST_CASE_FIXTURE(Fixture,
                  "a job that fails at its start again and again waits before it is restarted") {
  spec.max_restarts = 4;
  const auto start = Clock::now();
  submit("exit 3");
  const auto status = wait();
  CHECK(status.restarts == 4);
  CHECK(status.cause->exit_code == 3);
  CHECK(Clock::now() - start > std::chrono::milliseconds(100 + 200 + 400));
}

TEST_CASE_FIXTURE(Fixture,
                  "a job that waits to be restarted can be suspended, resumed and deleted") {
  spec.max_restarts = 1000;
  submit("exit 3");
  // Each pause is longer than the last: whoever misses one meets the next.
  const auto wait_for_pause = [&] {
    JobStatus last;
    backend.watch(job, [&](const JobStatus& status) {
      last = status;
      const auto pause = parse_duration(status.reason.substr(status.reason.rfind(' ') + 1));
      return status.phase != Phase::pending ||
             status.reason.find("; restart ") == std::string::npos ||
             pause < std::chrono::milliseconds(800);
    });
    return last;
  };
  CHECK(wait_for_pause().reason.starts_with("worker-0 (rank 0) on "));
  backend.suspend(job);
  CHECK(backend.status(job).phase == Phase::suspended);
  backend.resume(job);
  wait_for_pause();
  const auto uid = record().status.uid;
  backend.remove(job);
  CHECK(processes_left(uid) == 0);
}

TEST_CASE_FIXTURE(Fixture, "a job of another machine is shown as recorded, and left alone") {
  submit("true");
  wait();
  auto elsewhere = record();
  std::string place = "runs on another-host";
  SUBCASE("another host") { elsewhere.owner.machine = {"another-host", "", "boot", 1}; }
  SUBCASE("a container of this one that shares its name") {
    elsewhere.owner.machine.pid_namespace += 1;
    place = "runs on " + host_name() + ", in another container";
  }
  SUBCASE("a container with a name of its own") {
    elsewhere.owner.machine.pid_namespace += 1;
    elsewhere.owner.machine.host = "another-host";
  }
  SUBCASE("another host that shares this one's name") {
    elsewhere.owner.machine.id += "x";
    elsewhere.owner.machine.boot = "boot";
    place = "runs on " + host_name();
  }
  elsewhere.status.phase = Phase::running;
  store.open(job)->set_record(elsewhere);
  CHECK(backend.status(job).phase == Phase::running);
  CHECK(backend.status(job).reason == place + "; this is its last known state");
  CHECK(backend.list({})[0].phase == Phase::running);
  CHECK_THROWS_WITH_AS(backend.remove(job), doctest::Contains(place.c_str()), EngineError);
  CHECK_THROWS_WITH_AS(backend.suspend(job), doctest::Contains(place.c_str()), EngineError);
  CHECK_THROWS_WITH_AS(backend.exec(job, "worker-0", {"true"}), doctest::Contains(place.c_str()),
                       EngineError);
  CHECK(store.open(job));
}

TEST_CASE_FIXTURE(Fixture, "a job from before the machine's last start has failed") {
  submit("true");
  wait();
  auto before = record();
  before.owner.machine.boot = "boot";
  before.owner.machine.pid_namespace = 1;
  before.status.phase = Phase::running;
  store.open(job)->set_record(before);
  CHECK(backend.status(job).phase == Phase::failed);
  CHECK(backend.list({})[0].phase == Phase::failed);
  backend.remove(job);
  CHECK(!store.open(job));
}

TEST_CASE_FIXTURE(Fixture, "a rank that prints without end starves nobody") {
  submit("if [ $RANK = 0 ]; then while :; do echo xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; done; fi; "
         "echo heard; exit 1",
         2);
  const auto status = wait();
  CHECK(status.cause->rank == 1);
  CHECK(lines({.instance = "worker-1"}) == Lines{"worker-1 heard"});
}

} // namespace
TEST_CASE_FIXTURE(Fixture,
                  "a worker of an elastic job is started anew by itself, the others run on") {
  spec.min_workers = 1;
  spec.max_restarts = 1;
  submit(fmt::format("echo $RANK of $DTRAIN_MIN_WORKERS, run $DTRAIN_RESTART_COUNT; "
                     "[ $RANK = 1 ] && [ $DTRAIN_RESTART_COUNT = 0 ] && kill -KILL $$; "
                     "[ $RANK = 1 ] && touch {0}; until [ -e {0} ]; do sleep 0.02; done; exit 0",
                     folder / "is-back"),
         2);
  const auto status = wait();
  CHECK(status.phase == Phase::succeeded);
  CHECK(status.restarts == 0);
  CHECK(lines({.instance = "worker-0"}) == Lines{"worker-0 0 of 1, run 0"});
  const auto found = lines({.instance = "worker-1"});
  REQUIRE(found.size() == 3);
  CHECK(found[0] == "worker-1 1 of 1, run 0");
  CHECK(found[1].find("signal 9 (SIGKILL): restarted (1 of 1)") != std::string::npos);
  CHECK(found[2] == "worker-1 1 of 1, run 1");
}

TEST_CASE_FIXTURE(Fixture, "an elastic job goes on while there are enough") {
  spec.min_workers = 2;
  submit(fmt::format("[ $RANK = 2 ] && exit 3; until [ -e {} ]; do sleep 0.02; done; exit 0",
                     folder / "over"),
         3);
  backend.watch(job, [&](const JobStatus& status) {
    return status.reason.find("workers left: 2") == std::string::npos;
  });
  folder.write("over", "");
  CHECK(wait().phase == Phase::succeeded);
}

TEST_CASE_FIXTURE(Fixture, "an elastic job with fewer workers than it needs has failed") {
  spec.min_workers = 2;
  submit("[ $RANK = 0 ] && sleep 1000; exit 3", 3);
  const auto status = wait();
  CHECK(status.phase == Phase::failed);
  REQUIRE(status.cause);
  CHECK(status.cause->exit_code == 3);
}

TEST_CASE_FIXTURE(Fixture, "a worker is started anew once nothing runs that the failed one left") {
  spec.min_workers = 1;
  spec.max_restarts = 1;
  const auto lock = folder / "lock"; // A GPU, say.
  submit(fmt::format("[ $RANK = 0 ] && {{ until [ -e {0}.said ]; do sleep 0.02; done; exit; }}; "
                     "[ $DTRAIN_RESTART_COUNT = 1 ] && {{ flock -n {0} echo free || echo taken; "
                     "touch {0}.said; exit; }}; "
                     "( flock 9; sleep 1000 & setsid sleep 1000 & ) 9> {0}; kill -KILL $$",
                     lock),
         2);
  CHECK(wait().phase == Phase::succeeded);
  const auto said = lines({.instance = "worker-1"});
  REQUIRE(!said.empty());
  CHECK(said.back() == "worker-1 free");
}

TEST_CASE_FIXTURE(Fixture,
                  "a worker that fails at its start again and again is started later each time") {
  spec.min_workers = 1;
  spec.max_restarts = 4;
  const auto start = Clock::now();
  submit("[ $RANK = 1 ] && exit 3; until [ -e over ]; do sleep 0.02; done", 2);
  backend.watch(job, [&](const JobStatus& status) {
    return status.reason.find("workers left: 1") == std::string::npos;
  });
  CHECK(Clock::now() - start > std::chrono::milliseconds(100 + 200 + 400));
  const auto found = lines({.instance = "worker-1"});
  REQUIRE(found.size() == 4);
  CHECK(found[0].find("restarted (1 of 4)") != std::string::npos);
  CHECK(found[3].find("restarted in 400ms (4 of 4)") != std::string::npos);
  CHECK(backend.status(job).phase == Phase::running);
  backend.remove(job);
}

TEST_CASE("a restart waits twice as long each time, until a run has worked for a while") {
  Backoff backoff;
  const Backoff::Clock::time_point began{};
  const auto quick = began + std::chrono::milliseconds(9999);
  std::vector<Backoff::Pause::rep> pauses;
  for (int i = 0; i < 12; ++i) {
    pauses.push_back(backoff.pause_after(began, quick).count());
  }
  CHECK(pauses == std::vector<Backoff::Pause::rep>{0, 100, 200, 400, 800, 1600, 3200, 6400, 12800,
                                                   25600, 51200, 60000});
  CHECK(backoff.pause_after(began, began + std::chrono::seconds(10)).count() == 0);
  CHECK(backoff.pause_after(began, quick).count() == 0);
  CHECK(backoff.pause_after(began, quick).count() == 100);
}

} // namespace dtrain
