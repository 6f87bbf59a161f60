#include "cli/commands.h"
#include "cli/output/redraw.h"
#include "tests/unit/cli/fake_backend.h"

#include <doctest/doctest.h>

#include <fstream>

#include <algorithm>
#include <set>
#include <string>

using namespace dtrain;
using namespace dtrain::test;

namespace {

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

} // namespace

TEST_CASE("a mistyped command is refused with the nearest one") {
  Session session;
  session.run({"sumbit"});
  CHECK(session.status == 2);
  CHECK(session.out.empty());
  CHECK(session.err == "dtrain: unknown command 'sumbit'; did you mean 'submit'?\n");
}

TEST_CASE("another program's word for a command leads to ours") {
  CHECK(has(Session().run({"squeue"}).err, "did you mean 'list'?"));
  CHECK(has(Session().run({"rm"}).err, "did you mean 'delete'?"));
  CHECK(has(Session().run({"xyzzy"}).err, "'dtrain help' lists them all"));
}

TEST_CASE("a group without its second word says which there are") {
  CHECK(has(Session().run({"template"}).err, "list, show"));
  CHECK(has(Session().run({"template", "shwo"}).err, "did you mean 'show'?"));
  CHECK(Session().run({"template", "shwo"}).status == 2);
}

TEST_CASE("a mistyped flag is refused with the nearest one and the command's name") {
  Session session;
  session.run({"list", "--all-namespace"});
  CHECK(session.status == 2);
  CHECK(has(session.err, "dtrain list: "));
  CHECK(has(session.err, "--all-namespaces"));
}

TEST_CASE("a control character in a word cannot break the error's line") {
  const std::string err = Session().run({"a\nb\x1b"}).err;
  CHECK(std::count(err.begin(), err.end(), '\n') == 1);
  CHECK_FALSE(has(err, "\x1b"));
}

TEST_CASE("every command explains itself within 80 columns") {
  for (const auto& entry : commands()) {
    CAPTURE(entry.name);
    if (entry.name == "submit") {
      CHECK(Session().run({"submit", "--help=all"}).status == 0);
    }
    Session session;
    std::vector<std::string> words = {"help"};
    const std::string name(entry.name);
    words.push_back(name.substr(0, name.find(' ')));
    if (has(name, " ")) {
      words.push_back(name.substr(name.find(' ') + 1));
    }
    session.run(words);
    CHECK(session.status == 0);
    CHECK(has(session.out, "dtrain " + name));
    std::string flag_help = session.out;
    words.erase(words.begin());
    words.emplace_back("--help");
    CHECK(session.run(words).out == flag_help);
    for (std::size_t begin = 0, end = 0; begin < flag_help.size(); begin = end + 1) {
      end = flag_help.find('\n', begin);
      CHECK(end - begin <= 80);
    }
  }
}

TEST_CASE("no command has a flag twice") {
  for (const auto& entry : commands()) {
    const auto table = entry.make().table;
    std::set<std::string> seen = {"-h", "--help"};
    for (const auto& option : table.options) {
      auto flags = option.flag_list();
      flags.insert(flags.end(), option.aliases.begin(), option.aliases.end());
      for (const auto& flag : flags) {
        CAPTURE(entry.name);
        CAPTURE(flag);
        CHECK((option.positional || seen.insert(flag).second));
      }
    }
  }
}

TEST_CASE("help without a command lists every command") {
  Session session;
  session.run({});
  CHECK(session.status == 0);
  CHECK(session.out == Session().run({"help"}).out);
  CHECK(session.out == Session().run({"--help"}).out);
  for (const auto& entry : commands()) {
    if (entry.group.empty()) {
      continue;
    }
    const std::string name(entry.name);
    CHECK(has(session.out, "\n  " + name.substr(0, name.find(' ')) + " "));
  }
  CHECK_FALSE(has(session.out, "supervise"));
}

TEST_CASE("version says the same for people and for programs") {
  CHECK(has(Session().run({"version"}).out, "dtrain 0."));
  CHECK(Session().run({"--version"}).out == Session().run({"version"}).out);
  CHECK(has(Session().run({"version", "-o", "json"}).out, "\"version\": \"0."));
}

TEST_CASE("get prints the table that Arena's users know, each instance with its own age") {
  Session session;
  session.engine.jobs = {job("mnist", Phase::running)};
  session.run({"get", "mnist"});
  CHECK(session.status == 0);
  const std::string created = session.out.substr(session.out.find("CreateTime:"), 32);
  CHECK(session.out == "Name:        mnist\n"
                       "Status:      RUNNING\n"
                       "Namespace:   default\n"
                       "Priority:    N/A\n"
                       "Trainer:     DTRAINJOB\n"
                       "Duration:    10m\n" +
                           created +
                           "\n"
                           "EndTime:\n"
                           "\n"
                           "Instances:\n"
                           "  NAME      STATUS   AGE    IS_CHIEF  GPU(Requested)  NODE\n"
                           "  ----      ------   ---    --------  --------------  ----\n"
                           "  worker-0  Running  9m59s  true      1               host\n"
                           "  worker-1  Running  9m58s  false     1               host\n");
}

TEST_CASE("get of a failed job names rank, host and exit code, and its last lines") {
  Session session;
  session.engine.jobs = {failed_job("mnist")};
  session.run({"get", "mnist"});
  CHECK(has(session.out, "\nCause:\n  worker-1 (rank 1) on host ended with exit code 3\n"
                         "    Traceback:\n      boom\n"));
}

TEST_CASE("a rank ended by a signal is told by the signal's name") {
  Session session;
  JobStatus status = failed_job("mnist");
  status.cause->exit_code.reset();
  status.cause->signal = 9;
  session.engine.jobs = {status};
  CHECK(has(session.run({"get", "mnist"}).out,
            "worker-1 (rank 1) on host ended with signal 9 (SIGKILL)"));
}

TEST_CASE("get as JSON has Arena's keys") {
  Session session;
  session.engine.jobs = {failed_job("mnist")};
  const std::string json = session.run({"get", "mnist", "-o", "json"}).out;
  for (const char* key : {"uuid", "name", "namespace", "duration", "status", "trainer",
                          "tensorboard", "chiefName", "instances", "priority", "requestGPUs",
                          "allocatedGPUs", "creationTimestamp", "apiVersion"}) {
    CHECK(has(json, "\"" + std::string(key) + "\":"));
  }
  CHECK(has(json, "\"duration\": \"600s\""));
  CHECK(has(json, "\"chiefName\": \"worker-0\""));
  CHECK(has(json, "\"exitCode\": 3"));
}

TEST_CASE("a name that is not there is answered with the nearest, or with its namespace") {
  Session session;
  session.engine.jobs = {job("mnist", Phase::running), job("other", Phase::running)};
  session.engine.jobs[1].namespace_name = "team-a";
  session.run({"get", "mnits"});
  CHECK(session.status == 3);
  CHECK(session.err ==
        "dtrain get: no job 'mnits' in namespace 'default'; did you mean 'mnist'?\n");
  CHECK(has(session.run({"logs", "other"}).err, "add --namespace=team-a"));
}

TEST_CASE("list shows the newest first, and namespaces when asked") {
  Session session;
  session.engine.jobs = {job("old", Phase::succeeded), job("new", Phase::running)};
  session.engine.jobs[0].created -= k_second;
  session.engine.jobs[1].namespace_name = "team-a";
  CHECK(session.run({"list", "-A"}).out ==
        "NAMESPACE  NAME  STATUS     TRAINER    DURATION  GPU(Requested)  GPU(Allocated)  NODE  "
        "AGE\n"
        "team-a     new   RUNNING    DTRAINJOB  10m       2               0               host  "
        "10m\n"
        "default    old   SUCCEEDED  DTRAINJOB  10m       2               N/A             host  "
        "10m\n");
  CHECK(has(session.run({"list", "-o", "wide"}).out, "NODE  AGE  BACKEND  PRIORITY  CREATED\n"));
  CHECK(has(session.run({"list", "-o", "json"}).out, "\"backend\": \"fake\""));
  CHECK(session.run({"list", "-o", "name"}).out == "job/old\n");
  CHECK(session.run({"get"}).out == session.run({"list"}).out);
}

TEST_CASE("an empty list says so on stderr, and is an empty array in JSON") {
  Session session;
  session.run({"list"});
  CHECK(session.status == 0);
  CHECK(session.out.empty());
  CHECK(has(session.err, "No jobs"));
  CHECK(session.run({"list", "-o", "json"}).out == "[]\n");
}

TEST_CASE("delete goes on after a name that is not there, and exits with 3") {
  Session session;
  session.engine.jobs = {job("a", Phase::running), job("b", Phase::running)};
  session.run({"delete", "a", "nope", "b"});
  CHECK(session.out == "job/a deleted\njob/b deleted\n");
  CHECK(has(session.err, "no job 'nope'"));
  CHECK(session.status == 3);
  CHECK(session.engine.jobs.empty());
  CHECK(session.run({"delete", "a"}).status == 3);
  CHECK(session.run({"delete", "a", "--ignore-not-found"}).status == 0);
  CHECK(has(session.err, "no job 'a'"));
}

TEST_CASE("what -o name prints is taken wherever a job's name is") {
  Session session;
  session.engine.jobs = {job("a", Phase::running), job("b", Phase::running)};
  CHECK(session.run({"get", "job/a", "-o", "name"}).out == "job/a\n");
  CHECK(session.run({"logs", "tfjob/a"}).status == 0);
  CHECK(session.run({"delete", "job/a", "jobs/b"}).out == "job/a deleted\njob/b deleted\n");
  CHECK(session.run({"get", "pod/a"}).status == 2);
  CHECK(has(session.err, "must be a job's name, or job/NAME"));
}

TEST_CASE("an empty name is refused, and lists nothing") {
  for (const char* command : {"get", "logs", "delete", "wait", "explain", "suspend"}) {
    Session session;
    session.engine.jobs = {job("a", Phase::running)};
    CHECK(session.run({command, ""}).status == 2);
    CHECK(has(session.err, "the job's name is empty"));
    CHECK(session.out.empty());
  }
  CHECK(has(Session().run({"submit", ""}).err, "the job type is empty"));
}

TEST_CASE("get and logs take several jobs, by name or by label") {
  Session session;
  session.engine.jobs = {job("a", Phase::running), job("b", Phase::running)};
  session.engine.jobs[1].labels = {"team=x"};
  session.engine.lines = {{k_now, "worker-0", false, true, "hello"}};
  const std::string both = session.run({"get", "a", "b"}).out;
  CHECK(has(both, "Name:        a\n"));
  CHECK(has(both, "\n\nName:        b\n"));
  CHECK(has(session.run({"get", "a", "b", "-o", "json"}).out, "[\n"));
  CHECK(session.run({"get", "-l", "team=x", "-o", "name"}).out == "job/b\n");
  CHECK(session.run({"logs", "a", "b"}).out == "a/worker-0 | hello\nb/worker-0 | hello\n");
  CHECK(session.run({"get", "nope", "a"}).status == 3);
  CHECK(has(session.out, "Name:        a\n"));
  CHECK(session.run({"get", "-l", "team=x", "a"}).status == 2);
  CHECK(session.run({"get", "a", "b", "-w"}).status == 2);
  CHECK(session.run({"logs"}).status == 2);
}

TEST_CASE("a selector or label that no label can meet is refused") {
  CHECK(Session().run({"list", "-l", "bad label=x"}).status == 2);
  CHECK(Session().run({"submit", "-l", "bad label=x", "--dry-run"}).status == 2);
  CHECK(Session().run({"submit", "-l", "example.org/team=-x", "--dry-run"}).status == 2);
  CHECK(Session().run({"submit", "-l", "example.org/team=x_1.2", "--dry-run"}).status == 0);
  CHECK(Session().run({"list", "-n", "Team A"}).status == 2);
}

TEST_CASE("wait --for=running ends once all instances run, and as the job where it fails before") {
  Session session;
  session.engine.jobs = {job("a", Phase::pending), job("b", Phase::pending)};
  JobStatus half = job("a", Phase::running);
  half.instances[1].phase = Phase::pending;
  session.engine.changes = {job("a", Phase::pending), half, job("a", Phase::running),
                            failed_job("b")};
  CHECK(session.run({"wait", "a", "--for=running"}).out == "job/a is running\n");
  CHECK(session.status == 0);
  CHECK(session.run({"wait", "b", "--for=running"}).status == 100);
}

TEST_CASE("a rank that was killed is told to be short of memory, unless the engine says why") {
  Session session;
  JobStatus status = failed_job("mnist");
  status.cause->exit_code = 137;
  session.engine.jobs = {status};
  CHECK(has(session.run({"get", "mnist"}).out, "code 137 (often: out of memory)\n"));
  session.engine.jobs[0].cause->message = "out of memory: the limit was exceeded";
  CHECK(has(session.run({"get", "mnist"}).out, "exceeded\n"));
}

TEST_CASE("a suspended job says so, and how it goes on") {
  Session session;
  session.engine.jobs = {job("a", Phase::suspended)};
  session.engine.jobs[0].reason = "suspended";
  CHECK(session.run({"explain", "a"}).out ==
        "job/a is suspended\n  start it again: dtrain resume a\n");
  CHECK(has(session.run({"list", "--status=suspended"}).out, "a     SUSPENDED"));
  CHECK(has(session.run({"explain", "a", "-o", "json"}).out, "\"status\": \"SUSPENDED\""));
}

TEST_CASE("a list taller than the screen shows its newest end") {
  Stream out;
  Terminal terminal;
  terminal.is_terminal = true;
  terminal.height = 4;
  out.set_terminal(terminal);
  Redraw redraw(out);
  redraw.draw("1\n2\n3\n4\n5\n");
  CHECK(out.text() == "1\n2\n… and 3 more lines\n");
  redraw.draw("a\nb\n");
  CHECK(has(out.text(), "\x1b[3A\x1b[Ja\nb\n"));
}

TEST_CASE("names of data, code, settings and templates are printed for programs too") {
  Session session;
  CHECK(session.run({"data", "list", "-o", "json"}).out == "[]\n");
  session.run({"data", "add", "set", "--path=/d", "--read-only"});
  CHECK(session.run({"data", "list", "-o", "yaml"}).out ==
        "- name: set\n  path: /d\n  read-only: \"true\"\n");
  CHECK(has(session.run({"data", "get", "set", "-o", "json"}).out, "\"path\": \"/d\""));
  session.run({"code", "add", "c", "--git=https://example.org/c.git"});
  CHECK(has(session.run({"code", "list", "-o", "json"}).out, "\"git\": \"https://example.org"));
  session.run({"config", "set", "namespace", "mine"});
  CHECK(has(session.run({"config", "list", "-o", "yaml"}).out, "namespace: mine"));
  CHECK(has(session.run({"config", "view", "-o", "yaml"}).out, "value: mine"));
  CHECK(has(session.run({"template", "list", "-o", "json"}).out, "\"name\": \"local/job.yaml\""));
}

TEST_CASE("a command that stands without -- is told from a job type, before its flags are") {
  const auto error = [](const std::vector<std::string>& words) {
    Session session;
    session.run(words);
    CHECK(session.status == 2);
    return session.err;
  };
  CHECK(has(error({"submit", "torchrun", "--nproc_per_node=2", "x.py"}),
            "dtrain submit -- torchrun --nproc_per_node=2 x.py"));
  CHECK(has(error({"submit", "python", "train.py"}), "dtrain submit -- python train.py"));
  CHECK(has(error({"submit", "--epochs=3"}), "as in -- --epochs=3"));
  CHECK(has(error({"submit", "pytorchjbo"}), "did you mean pytorchjob?"));
  CHECK(has(error({"submit", "sparkjob", "--image=x"}), "spark-submit"));
  CHECK(has(error({"submit", "--nproc-per-node=2", "--dry-run"}), "not for a job without a type"));
}

TEST_CASE("delete needs names or --all, and not both") {
  Session session;
  session.engine.jobs = {job("a", Phase::running)};
  CHECK(session.run({"delete"}).status == 2);
  CHECK(session.run({"delete", "--all", "a"}).status == 2);
  CHECK(session.engine.jobs.size() == 1);
  CHECK(session.run({"delete", "--all"}).out == "job/a deleted\n");
}

TEST_CASE("wait exits with 100 for a failed job and prints why") {
  Session session;
  session.engine.jobs = {job("good", Phase::running), job("bad", Phase::running)};
  session.engine.changes = {job("good", Phase::running), job("good", Phase::succeeded),
                            job("bad", Phase::running), failed_job("bad")};
  session.run({"wait", "bad", "good"});
  CHECK(session.status == 100);
  CHECK(session.out == "job/good succeeded in 10m\n");
  CHECK(session.err ==
        "dtrain wait: job/bad failed: worker-1 (rank 1) on host ended with exit code 3\n"
        "  Traceback:\n    boom\n");
}

TEST_CASE("check exits with 4 only where something would stop a job") {
  Session session;
  session.engine.checks = {{CheckResult::Level::ok, "trainer", "found"},
                           {CheckResult::Level::warning, "GPUs", "none"}};
  CHECK(session.run({"check", "-b", "kubernetes"}).status == 0);
  CHECK(session.out == "✓ trainer  found\n! GPUs     none\n");
  session.engine.checks.push_back({CheckResult::Level::error, "disk", "full"});
  CHECK(session.run({"check"}).status == 4);
  CHECK(has(session.run({"check", "-o", "json"}).out, "\"level\": \"error\""));
}

TEST_CASE("logs of several instances carry their names, of one they do not") {
  Session session;
  session.engine.jobs = {job("mnist", Phase::running)};
  session.engine.lines = {{k_now, "worker-0", false, true, "hello"},
                          {k_now, "worker-1", true, true, "world"}};
  CHECK(session.run({"logs", "mnist"}).out == "worker-0 | hello\nworker-1 | world\n");
  CHECK(session.run({"logs", "mnist", "-i", "worker-1"}).out == "world\n");
  CHECK(has(session.run({"logs", "mnist", "--timestamps", "-i", "worker-0"}).out,
            "2023-11-14T22:23:20.000000Z hello\n"));
}

TEST_CASE("logs hands its flags to the backend") {
  Session session;
  session.engine.jobs = {job("mnist", Phase::running)};
  session.run({"logs", "mnist", "-f", "--tail=5", "--since=10m"});
  CHECK(session.engine.last_query.follow);
  CHECK(session.engine.last_query.tail == 5);
  CHECK(session.engine.last_query.since == k_now - 600 * k_second);
  CHECK(session.run({"logs", "mnist", "--since=yesterday"}).status == 2);
  for (const char* flag : {"-p", "--previous", "--prev"}) {
    CHECK(has(session.run({"logs", "mnist", flag}).err, "has not been restarted"));
  }
  session.run({"logs", "mnist", "--since-time=2023-11-14T22:13:20Z", "-t5"});
  CHECK(session.engine.last_query.since == k_now - 600 * k_second);
  CHECK(session.engine.last_query.tail == 5);
}

TEST_CASE("logs of an instance that is not there suggests one that is") {
  Session session;
  session.engine.jobs = {job("mnist", Phase::running)};
  session.run({"logs", "mnist", "-i", "worker-9"});
  CHECK(session.status == 3);
  CHECK(has(session.err, "no instance 'worker-9'"));
}

TEST_CASE("get --watch writes a line for every change where nobody watches a screen") {
  Session session;
  session.engine.jobs = {job("mnist", Phase::pending)};
  session.engine.changes = {job("mnist", Phase::pending), job("mnist", Phase::running),
                            job("mnist", Phase::succeeded)};
  session.run({"get", "mnist", "-w"});
  CHECK(std::count(session.out.begin(), session.out.end(), '\n') == 4);
  CHECK(has(session.out, "PENDING"));
  CHECK(has(session.out, "SUCCEEDED"));
  CHECK(session.run({"get", "-w"}).status == 2);
}

TEST_CASE("Tab offers the jobs of the namespace that the line names") {
  Session session;
  session.engine.jobs = {job("b", Phase::running), job("a", Phase::running),
                         job("other", Phase::running)};
  session.engine.jobs[2].namespace_name = "team-a";
  CHECK(session.run({"__complete", "bash", "get", ""}).out == "\na\t\nb\t\n");
  CHECK(session.run({"__complete", "bash", "logs", "-n", "team-a", ""}).out == "\nother\t\n");
  CHECK(has(session.run({"__complete", "bash", "logs", "a", "-i", ""}).out, "worker-1\t"));
  CHECK(has(session.run({"__complete", "bash", "sub"}).out, "submit\t"));
}

TEST_CASE("Tab offers commands to help, states, data, code, and what a setting may be") {
  Session session;
  session.run({"data", "add", "set", "--path=/d"});
  session.run({"code", "add", "mine", "--path=/c"});
  const auto offered = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"__complete", "bash"});
    return session.run(words).out;
  };
  CHECK(has(offered({"help", "sub"}), "submit\tRun "));
  CHECK(offered({"help", "data", "cop"}) == "\ncopy\tCopy a bucket into a folder\n");
  CHECK(has(offered({"list", "--status=s"}), "--status=suspended\t"));
  CHECK(offered({"submit", "-d", ""}) == "nospace\nset:\t\n");
  CHECK(offered({"submit", "--code="}) == "\n--code=mine\t\n");
  CHECK(offered({"data", "delete", ""}) == "\nset\t\n");
  CHECK(has(offered({"config", "set", "backend", ""}), "kubernetes\t"));
  CHECK(has(offered({"con"}), "config\tProfiles: "));
  CHECK_FALSE(has(offered({"scale"}), "scaleout"));
}

TEST_CASE("submit's help is the flags that most jobs need, and the rest by group") {
  const std::string brief = Session().run({"submit", "--help"}).out;
  CHECK(has(brief, "--workers=N"));
  CHECK_FALSE(has(brief, "--ps-cpu"));
  CHECK(std::count(brief.begin(), brief.end(), '\n') < 100);
  CHECK(has(brief, "--help=GROUP"));
  const std::string roles = Session().run({"submit", "--help=roles"}).out;
  CHECK(has(roles, "--ps-gpus"));
  CHECK_FALSE(has(roles, "--ps-cpu"));
  const std::string own = Session().run({"submit", "--help=kubernetes"}).out;
  CHECK(has(own, "--ps-cpu"));
  CHECK(has(own, "--toleration"));
  const std::string all = Session().run({"submit", "--help=all"}).out;
  CHECK(has(all, "--ps-cpu"));
  CHECK(has(all, "--toleration"));
  Session session;
  CHECK(session.run({"submit", "--help=rolls"}).status == 2);
  CHECK(has(session.err, "roles"));
  CHECK(session.run({"submit", "--name=x", "--", "prog", "--help=all"}).status == 0);
}

TEST_CASE("submit's help is of the backend that the line, the environment or the profile names") {
  Session session;
  const auto help = [&](std::vector<std::string> words) {
    words.insert(words.begin(), "submit");
    return session.run(words).out;
  };
  const std::string all = help({"--help=all"});
  CHECK(
      has(all, "\nFlags of one backend: --help --backend=NAME (local, kubernetes, slurm, ssh)\n"));
  CHECK(has(help({"--help"}), "\nFlags of one backend: "));
  const std::string ssh = help({"--help=all", "-b", "ssh"});
  CHECK(std::count(ssh.begin(), ssh.end(), '\n') * 5 <
        std::count(all.begin(), all.end(), '\n') * 3);
  for (const char* other : {"--toleration", "--image", "--queue", "--partition", "--context"}) {
    CAPTURE(other);
    CHECK(has(all, other));
    CHECK_FALSE(has(ssh, other));
  }
  for (const char* own : {"--hosts=", "--include=", "--exclude=HOST[", "Do not use these hosts",
                          "--backend=NAME", "flags of the ssh backend"}) {
    CAPTURE(own);
    CHECK(has(ssh, own));
  }
  CHECK_FALSE(has(ssh, "ssh: "));
  CHECK(has(help({"--help=all", "--backend=slurm"}), "--exclude=NODES"));
  CHECK_FALSE(has(help({"--help", "-b", "local"}), "--image"));
  CHECK(help({"--help=all", "--", "-b", "ssh"}) == all);
  session.run({"config", "set", "backend", "ssh"});
  CHECK(help({"--help=all"}) == ssh);
  CHECK(has(help({"--help=ssh"}), "--exclude=HOST["));
  CHECK(has(help({"--help=slurm"}), "--exclude=NODES"));
  CHECK(session.run({"help", "submit"}).out == help({"--help"}));
  CHECK(has(session.out, "flags of the ssh backend"));
  setenv("DTRAIN_BACKEND", "slurm", 1);
  CHECK(has(help({"--help"}), "flags of the slurm backend"));
  unsetenv("DTRAIN_BACKEND");
  CHECK_FALSE(has(session.run({"list", "--help", "-b", "slurm"}).out, "--context"));
  CHECK(has(session.out, "--login-host"));
}

TEST_CASE("Tab offers the flags that the backend takes, and the backends that can do it") {
  Session session;
  const auto offered = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"__complete", "bash"});
    return session.run(words).out;
  };
  CHECK(has(offered({"submit", "--tol"}), "--toleration="));
  CHECK(offered({"submit", "--backend=ssh", "--tol"}) == "\n");
  CHECK(has(offered({"submit", "-b", "ssh", "--inc"}), "--include="));
  CHECK(has(offered({"submit", "--dry-run="}), "server"));
  CHECK_FALSE(has(offered({"submit", "-b", "ssh", "--dry-run="}), "server"));
  CHECK(offered({"list", "-b", "ssh", "--cont"}) == "\n");
  CHECK(has(offered({"list", "-l", "-b", "ssh", "--sel"}), "--selector="));
  CHECK(has(offered({"suspend", "-b", "s"}), "slurm\t"));
  CHECK(offered({"scale", "-b", "s"}) == "\nssh\t\n");
  session.engine.jobs = {job("elsewhere", Phase::running)};
  session.engine.jobs[0].namespace_name = "team";
  setenv("DTRAIN_NAMESPACE", "team", 1);
  CHECK(offered({"get", ""}) == "\nelsewhere\t\n");
  unsetenv("DTRAIN_NAMESPACE");
}

TEST_CASE("what a backend cannot do is refused by its table, before it is opened") {
  Session session;
  session.engine.jobs = {job("mnist", Phase::running)};
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"scale", "mnist", "--workers=3", "-b", "slurm"},
        {"scaleout", "--name=mnist", "--backend=slurm"}}) {
    CHECK(session.run(words).status == 2);
    CHECK(has(session.err, ": the slurm backend does not resize running jobs; resubmit the job: "));
  }
  CHECK(session.engine.opened == 0);
  CHECK(has(session.run({"scale", "--help"}).out, "The slurm backend does not resize"));
  CHECK(
      has(session.run({"check", "-b", "slurm"}).out, "- scale  not on slurm: it does not resize"));
  CHECK(session.status == 0);
  CHECK(has(session.run({"check", "-b", "slurm", "-o", "json"}).out, "\"level\": \"note\""));
}

TEST_CASE("delete --save-logs writes a file an instance before the job goes") {
  Session session;
  session.engine.jobs = {job("mnist", Phase::succeeded)};
  session.engine.lines = {{1, "worker-0", false, true, "a"}, {2, "worker-1", true, true, "b"}};
  const auto folder = session.folder.path / "saved";
  CHECK(session.run({"delete", "mnist", "--save-logs=" + folder.string()}).status == 0);
  CHECK(session.engine.jobs.empty());
  std::ifstream file(folder / "mnist" / "worker-1.log");
  std::string text;
  CHECK(std::getline(file, text));
  CHECK(text == "b");
}

TEST_CASE("delete --save-logs keeps the log of an instance that was added meanwhile") {
  Session session;
  session.engine.jobs = {job("mnist", Phase::succeeded)};
  session.engine.lines = {{1, "worker-9", false, true, "new"}};
  const auto folder = session.folder.path / "saved";
  CHECK(session.run({"delete", "mnist", "--save-logs=" + folder.string()}).status == 0);
  std::ifstream file(folder / "mnist" / "worker-9.log");
  std::string text;
  CHECK(std::getline(file, text));
  CHECK(text == "new");
}

TEST_CASE("Tab is silent whatever is wrong") {
  Session session;
  std::filesystem::create_directories(session.config);
  for (const std::vector<std::string>& words : {std::vector<std::string>{"__complete"},
                                                {"__complete", "bash", "logs", "nope", "-i", ""},
                                                {"__complete", "bash", "get", ""},
                                                {"__complete", "tcsh", "get", ""}}) {
    session.run(words);
    CHECK(session.err.empty());
    CHECK(session.out.find('\t') == std::string::npos);
  }
}
