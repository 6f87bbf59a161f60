#include "cli/commands.h"
#include "tests/unit/cli/fake_backend.h"

#include <doctest/doctest.h>

#include <fstream>

#include <algorithm>

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

TEST_CASE("help without a command lists every command") {
  Session session;
  session.run({});
  CHECK(session.status == 0);
  CHECK(session.out == Session().run({"help"}).out);
  CHECK(session.out == Session().run({"--help"}).out);
  for (const auto& entry : commands()) {
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
  CHECK(has(session.out, "\nCause:\n  worker-1 (rank 1) on host exited with code 3\n"
                         "    Traceback:\n      boom\n"));
}

TEST_CASE("a rank ended by a signal is told by the signal's name") {
  Session session;
  JobStatus status = failed_job("mnist");
  status.cause->exit_code.reset();
  status.cause->signal = 9;
  session.engine.jobs = {status};
  CHECK(has(session.run({"get", "mnist"}).out, "worker-1 (rank 1) on host was ended by SIGKILL"));
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
        "NAMESPACE  NAME  STATUS     TRAINER    DURATION  GPU(Requested)  GPU(Allocated)  NODE\n"
        "team-a     new   RUNNING    DTRAINJOB  10m       2               0               host\n"
        "default    old   SUCCEEDED  DTRAINJOB  10m       2               N/A             host\n");
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

TEST_CASE("delete goes on after a name that is not there, which is said and no error") {
  Session session;
  session.engine.jobs = {job("a", Phase::running), job("b", Phase::running)};
  session.run({"delete", "a", "nope", "b"});
  CHECK(session.out == "job/a deleted\njob/b deleted\n");
  CHECK(has(session.err, "no job 'nope'"));
  CHECK(session.status == 0);
  CHECK(session.engine.jobs.empty());
  CHECK(session.run({"delete", "a"}).status == 0);
  CHECK(has(session.err, "nothing to delete"));
  CHECK(session.run({"delete", "a", "--ignore-not-found"}).err.empty());
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
  CHECK(session.err == "dtrain wait: job/bad failed: worker-1 (rank 1) on host exited with code 3\n"
                       "  Traceback:\n    boom\n");
}

TEST_CASE("check exits with 4 only where something would stop a job") {
  Session session;
  session.engine.checks = {{CheckResult::Level::ok, "trainer", "found"},
                           {CheckResult::Level::warning, "GPUs", "none"}};
  CHECK(session.run({"check"}).status == 0);
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
  CHECK(has(session.run({"logs", "mnist", "--prev"}).err, "has not been restarted"));
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

TEST_CASE("what a backend cannot do is a usage error that names it") {
  Session session;
  session.engine.jobs = {job("mnist", Phase::running)};
  for (const std::vector<std::string>& words : {std::vector<std::string>{"suspend", "mnist"},
                                                {"resume", "mnist"},
                                                {"scale", "mnist", "--workers=3"},
                                                {"top", "node"}}) {
    CHECK(session.run(words).status == 2);
    CHECK(has(session.err, "the fake backend cannot"));
  }
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
