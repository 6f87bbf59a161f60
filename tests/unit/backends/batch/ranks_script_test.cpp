// Functions of templates/batch/ranks.sh, each by itself.
#include "backends/support/os/subprocess.h"
#include "submit/template/render.h"

#include <doctest/doctest.h>

#include <string>

namespace dtrain::batch {
namespace {

/// "NAME() { … }" of it.
std::string function(const std::string& name) {
  const std::string_view text = builtin_template("batch/ranks.sh").text;
  const auto begin = text.find("\n" + name + "() {\n");
  REQUIRE(begin != std::string_view::npos);
  return std::string(text.substr(begin, text.find("\n}\n", begin) + 3 - begin));
}

CommandResult run(const std::string& script) { return run_command({.argv = {"sh", "-c", script}}); }

} // namespace

TEST_CASE("a queue that never says where its nodes are is asked for ten minutes, not for ever") {
  const CommandResult result =
      run("waited=0\nsleep() { waited=$((waited + $1)); [ $waited -le 3600 ] || exit 9; }\n"
          "ask_nodes() { return 1; }\n" +
          function("node_addresses") + "node_addresses\ncode=$?\necho \"$waited s\"\nexit $code\n");
  CHECK(result.ending.exit_code == 1);
  CHECK(result.out == "590 s\n");
  CHECK(result.errors ==
        "dtrain: cannot look up the job's nodes: the queue has not answered for ten minutes\n");
}

TEST_CASE("a queue that fails and then answers starts the job") {
  const CommandResult result = run(
      "sleep() { touched=yes; }\n"
      "getent() { [ \"$2\" = known ]; }\n"
      "ask_nodes() { [ -n \"$touched\" ] && printf '%s\\n' 'known 10.0.0.1' 'other 10.0.0.2'; }\n" +
      function("node_addresses") + "node_addresses\n");
  CHECK(result.ending.exit_code == 0);
  CHECK(result.out == "known known\nother 10.0.0.2\n");
}

} // namespace dtrain::batch
