#include "submit/fields/arena.h"

#include "cli/commands.h"
#include "submit/errors.h"

#include <doctest/doctest.h>

using namespace dtrain;

TEST_CASE("every flag of Arena is taken, or refused with a reason") {
  const auto submit = submit_command();
  CHECK(arena_flags().size() == 98);
  for (const std::string& flag : arena_flags()) {
    CAPTURE(flag);
    CHECK(submit.table.find(flag) != nullptr);
  }
}

TEST_CASE("a refused flag is named with its reason, and shown nowhere") {
  const auto submit = submit_command();
  CHECK_THROWS_WITH_AS(parse_options(submit.table, {"--helm-binary"}),
                       "--helm-binary: no Helm is called; leave it out", UsageError);
  CHECK_THROWS_WITH_AS(parse_options(submit.table, {"--ssh-port=22"}),
                       doctest::Contains("--ssh-port: "), UsageError);
  CHECK(help_text("dtrain", submit.table, 100).find("helm") == std::string::npos);
}

TEST_CASE("the page on Arena says of each flag what becomes of it") {
  const auto submit = submit_command();
  const auto backends = [](const std::string& key) { return key == "rdma" ? "a, b" : ""; };
  const std::string page =
      man_arena({.program = "dtrain", .version = "1", .date = "today", .see_also = {}},
                submit.table, backends);
  CHECK(page.find("IPC_LOCK.\nBackends: a, b.\n") != std::string::npos);
  CHECK(page.find(".It Fl \\-helm\\-binary\nRefused: ") != std::string::npos);
  CHECK(page.find(".It Fl \\-retry\nThe same as\n.Fl \\-max\\-restarts .") != std::string::npos);
}
