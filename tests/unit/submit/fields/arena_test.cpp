#include "submit/fields/arena.h"

#include "cli/commands.h"
#include "submit/errors.h"

#include <doctest/doctest.h>

using namespace dtrain;

TEST_CASE("every flag of Arena is taken") {
  const auto submit = submit_command();
  CHECK(arena_flags().size() == 106);
  for (const std::string& flag : arena_flags()) {
    CAPTURE(flag);
    CHECK(submit.table.find(flag) != nullptr);
  }
}

TEST_CASE("a flag with nothing to do is taken with its reason, and shown nowhere") {
  ArenaFlags flags;
  std::vector<std::string> notices;
  CommandTable table = {.name = "submit", .options = arena_options(flags), .notices = &notices};
  CHECK(parse_options(table, {"--helm-binary", "--ssh-port=22"}));
  CHECK(notices == std::vector<std::string>{"--helm-binary: not needed: Helm is not called",
                                            "--ssh-port: not needed: dtrain chooses the port"});
  CHECK(help_text("dtrain", submit_command().table, 100).find("helm") == std::string::npos);
}

TEST_CASE("a flag in Arena's old spelling is the one that took its place") {
  const auto submit = submit_command();
  for (const auto& [spelled, now] :
       {std::pair("--workerImage", "--worker-image"), std::pair("--psCpu", "--ps-cpu"),
        std::pair("--syncMode", "--sync-mode"), std::pair("--workingDir", "--working-dir"),
        std::pair("--hostIPC", "--host-ipc"), std::pair("--dataDir", "--data-dir")}) {
    const char* const old = spelled; // What a lambda may capture.
    CAPTURE(old);
    REQUIRE(submit.table.find(old) != nullptr);
    CHECK(submit.table.find(old) == submit.table.find(now));
  }
  CHECK(submit.table.find("--wORKERS") == nullptr);
}

TEST_CASE("a command is run as the scalar of YAML that Arena makes of it") {
  CHECK(arena_command({"python", "main.py"}) == "python main.py");
  CHECK(arena_command({"'python main.py --steps 5'"}) == "python main.py --steps 5");
  CHECK(arena_command({"'a' 'b'"}) == "'a' 'b'");
  CHECK(arena_command({"horovodrun\n  -np 2\n  python x.py\n  "}) ==
        "horovodrun -np 2 python x.py ");
  CHECK(arena_command({"cd x\npython y -"}) == "cd x\npython y -");
}

TEST_CASE("a command has those of Arena's variables that it speaks of") {
  JobSpec job;
  job.workers = 3;
  job.max_workers = 9;
  job.env = {"gpus=7"};
  add_arena_variables("echo ${workers} ${gpus} $((${maxWorkers}*2)) ${min}", job);
  CHECK(job.env == std::vector<std::string>{"gpus=7", "workers=3", "maxWorkers=9"});
}

TEST_CASE("the page on Arena says of each flag what becomes of it") {
  const auto submit = submit_command();
  const auto backends = [](std::string_view key) { return key == "rdma" ? "a, b" : ""; };
  const std::string page =
      man_arena({.program = "dtrain", .version = "1", .date = "today", .see_also = {}},
                submit.table, backends);
  CHECK(page.find("IPC_LOCK.\nBackends: a, b.\n") != std::string::npos);
  CHECK(page.find(".It Fl \\-helm\\-binary\nAccepted; not needed: ") != std::string::npos);
  CHECK(page.find(".It Fl \\-retry\nThe same as\n.Fl \\-max\\-restarts .") != std::string::npos);
}

TEST_CASE("rsync and -np are refused with what to write instead") {
  CHECK_THROWS_WITH_AS(refuse_misread({"tf", "--syncMode", "rsync"}),
                       doctest::Contains("--sync-mode=local"), UsageError);
  CHECK_THROWS_AS(refuse_misread({"--sync-mode=rsync"}), UsageError);
  CHECK_THROWS_WITH_AS(refuse_misread({"mpi", "-np", "4"}), doctest::Contains("--workers=N"),
                       UsageError);
  CHECK_THROWS_WITH_AS(refuse_misread({"-x", "h2"}), doctest::Contains("--exclude-hosts=HOSTS"),
                       UsageError);
  CHECK_NOTHROW(refuse_misread({"--sync-mode=git", "--", "--sync-mode=rsync", "-x"}));
}
