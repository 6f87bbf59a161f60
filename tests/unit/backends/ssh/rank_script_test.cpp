#include "backends/ssh/rank_script.h"
#include "backends/ssh/ssh_command.h"
#include "backends/support/os/subprocess.h"
#include "tests/unit/backends/temporary_folder.h"

#include <doctest/doctest.h>

#include <chrono>
#include <string>
#include <vector>

using namespace dtrain;
using namespace dtrain::ssh;
using dtrain::test::TemporaryFolder;

TEST_CASE("a rank's script starts its program with every byte of its words and variables") {
  const TemporaryFolder folder;
  const std::string hostile = "a'b \"$HOME\" `id`\n\\ \xff\x81 é";
  const std::vector<Mount> mounts;
  const std::string dir = "/";
  const std::string hostfile = "h slots=1\n";
  const RankCommand command{
      .rank = 0,
      .argv = {"sh", "-c", "printf '%s|' \"$@\" \"$V\"; cat \"$HOSTS\"", "sh", hostile, "-n"},
      .env = {{"V", hostile}, {"odd.name", "x y"}, {"UID", "7"}, {"HOSTS", k_own_hostfile}},
      .working_dir = dir,
      .mounts = mounts,
      .workspace = "",
      .hostfile = hostfile};
  const auto script = "id=aa\nrun=" + folder.path() + "\n" + rank_script(command, {}) + "begin\n";
  // To its end: setsid goes on in another process where it leads a group.
  const auto result = run_command(
      {.argv = {"sh", "-c", "eval \"$0\" | cat", script}, .limit = std::chrono::seconds(60)});
  CHECK(result.out == hostile + "|-n|" + hostile + "|" + hostfile);
}

TEST_CASE("what ssh says of a host comes with what to do") {
  CHECK(explain_loss("h1", "ssh: connect to host h1 port 22: Connection refused\r\n") ==
        "ssh: connect to host h1 port 22: Connection refused");
  CHECK(explain_loss("h1", "@@@@\nWARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!\n@@\nHost key "
                           "verification failed.\n")
            .find("ssh-keygen -R h1") != std::string::npos);
  CHECK(explain_loss("h1", "Host key verification failed.\n") ==
        "its host key is unknown here: run ssh h1 once and check the key");
  CHECK(explain_loss("h1", "me@h1: Permission denied (publickey).\n")
            .starts_with("me@h1: Permission denied (publickey).: it accepts none of your keys"));
}
