#include "tests/unit/cli/fake_backend.h"
#include "tests/unit/variable.h"

#include <doctest/doctest.h>

#include <fstream>

using namespace dtrain;
using namespace dtrain::test;

namespace {

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

void write(const std::filesystem::path& file, const std::string& text) {
  std::filesystem::create_directories(file.parent_path());
  std::ofstream(file) << text;
}

} // namespace

TEST_CASE("submit starts the job, names it, and says how to follow it") {
  Session session;
  session.run({"submit", "--name=mnist", "--workers=3", "--", "python", "train.py", "a b"});
  CHECK(session.status == 0);
  CHECK(session.out == "job/mnist submitted\n");
  CHECK(session.err == "Follow it with: dtrain logs -f mnist\n");
  REQUIRE(session.engine.submitted.size() == 1);
  CHECK(session.engine.submitted[0].workers == 3);
  CHECK(session.engine.submitted[0].command ==
        std::vector<std::string>{"python", "train.py", "a b"});
}

TEST_CASE("a plan that is stale when it is submitted is made again") {
  Session session;
  session.engine.stale_plans = 2;
  session.run({"submit", "--name=mnist", "--gpus=1", "--", "true"});
  CHECK(session.status == 0);
  CHECK(session.engine.plans == 3);
  CHECK(session.engine.submitted.size() == 1);
  CHECK(session.err == "dtrain submit: no GPUs here\nFollow it with: dtrain logs -f mnist\n");
}

TEST_CASE("submit as a name, or quietly, prints nothing that a script would trip over") {
  Session session;
  CHECK(session.run({"submit", "--name=a", "-o", "name"}).out == "job/a\n");
  CHECK(session.err.empty());
  CHECK(session.run({"submit", "--name=b", "-q"}).out.empty());
  CHECK(session.err.empty());
}

TEST_CASE("a dry run prints the plan's bytes and starts nothing") {
  Session session;
  CHECK(session.run({"submit", "--name=a", "--dry-run"}).out == "the document of a\n");
  CHECK(has(session.run({"submit", "--name=a", "--dry-run", "-o", "yaml"}).out, "name: "));
  CHECK(session.engine.submitted.empty());
}

TEST_CASE("a job file written by a dry run, as YAML or JSON, submits the same job") {
  for (const char* format : {"yaml", "json"}) {
    CAPTURE(format);
    Session session;
    const std::vector<std::string> flags = {"submit",          "--name=a", "--workers=2",
                                            "--env=K=a\nb",    "--gpus=1", "--grace-period=2s",
                                            "--max-restarts=3"};
    std::vector<std::string> words = flags;
    words.insert(words.end(), {"--dry-run", "-o", format, "--", "echo", "$x {{y}} # 'z'"});
    session.run(words);
    REQUIRE(session.status == 0);
    write(session.folder.path / "job", session.out);
    session.run({"submit", "-f", (session.folder.path / "job").string()});
    words = flags;
    words.insert(words.end(), {"--", "echo", "$x {{y}} # 'z'"});
    session.run(words);
    REQUIRE(session.engine.submitted.size() == 2);
    CHECK(session.engine.submitted[0] == session.engine.submitted[1]);
  }
}

TEST_CASE("a flag wins over the job file, that over the environment, that over the profile") {
  Session session;
  write(session.config, "current-profile: p\nprofiles:\n  p:\n    namespace: from-profile\n");
  write(session.folder.path / "job.yaml", "name: a\nworkers: 2\nnamespace: from-file\n");
  const std::string file = (session.folder.path / "job.yaml").string();
  const auto submitted_to = [&](const std::vector<std::string>& words) {
    session.run(words);
    CHECK(session.err.find("error") == std::string::npos);
    REQUIRE_FALSE(session.engine.submitted.empty());
    return session.engine.submitted.back().namespace_name;
  };
  CHECK(submitted_to({"submit", "--name=a"}) == "from-profile");
  {
    const unit::Variable variable("DTRAIN_NAMESPACE", "from-env");
    CHECK(submitted_to({"submit", "--name=a"}) == "from-env");
    CHECK(submitted_to({"submit", "-f", file}) == "from-file");
    CHECK(submitted_to({"submit", "-f", file, "-n", "from-flag", "--workers=5"}) == "from-flag");
  }
  CHECK(session.engine.submitted.back().workers == 5);
}

TEST_CASE("a command without -- is refused with where it goes") {
  Session session;
  session.run({"submit", "python train.py --x 1"});
  CHECK(session.status == 2);
  CHECK(has(session.err, "--"));
  CHECK(has(session.err, "python train.py"));
  CHECK(session.engine.submitted.empty());
}

TEST_CASE("a job file that cannot be read is told with its name and why") {
  Session session;
  session.run({"submit", "-f", "/nowhere/job.yaml"});
  CHECK(session.status == 2);
  CHECK(session.err ==
        "dtrain submit: --file: cannot read '/nowhere/job.yaml': No such file or directory\n");
  CHECK(has(session.run({"submit", "-f", "/"}).err, "Is a directory"));
}

TEST_CASE("the plan's notices go to stderr") {
  CHECK(has(Session().run({"submit", "--gpus=1", "--dry-run"}).err, "no GPUs here"));
}

TEST_CASE("without a namespace a job goes where the backend says") {
  Session session;
  session.run({"submit", "-b", "kubernetes", "--name=a", "--context=team", "--", "true"});
  CHECK(session.engine.submitted.at(0).namespace_name == "of-team");
  CHECK(has(session.err, "dtrain logs -f a -b kubernetes --context="));
  session.run(
      {"submit", "-b", "kubernetes", "--name=b", "--context=team", "-n", "mine", "--", "true"});
  CHECK(session.engine.submitted.at(1).namespace_name == "mine");
}

TEST_CASE("a backend without a server says so to --dry-run=server") {
  Session session;
  CHECK(session.run({"submit", "--name=a", "--dry-run=server", "--", "true"}).status == 2);
  CHECK(session.err == "dtrain submit: --dry-run=server: the local backend has no server to check "
                       "the job; use --dry-run\n");
  CHECK(session.engine.opened == 0);
  CHECK(session.run({"submit", "--name=a", "--dry-run=client", "--", "true"}).out ==
        session.run({"submit", "--name=a", "--dry-run", "--", "true"}).out);
  CHECK(session.run({"submit", "--name=a", "--dry-run=clint", "--", "true"}).status == 2);
}

TEST_CASE("submit --wait prints the logs, then exits with 100 where the job failed") {
  Session session;
  session.engine.lines = {{k_now, "worker-0", false, true, "hello"}};
  session.engine.changes = {failed_job("a")};
  session.run({"submit", "--name=a", "--wait"});
  CHECK(session.status == 100);
  CHECK(session.out == "job/a submitted\nhello\n");
  CHECK(session.err ==
        "dtrain submit: job/a failed: worker-1 (rank 1) on host ended with exit code 3\n");
  session.engine.changes = {job("b", Phase::succeeded)};
  session.run({"submit", "--name=b", "--wait"});
  CHECK(session.status == 0);
  CHECK(session.err == "job/b succeeded in 10m\n");
}
