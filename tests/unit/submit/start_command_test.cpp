#include "submit/start_command.h"

#include <doctest/doctest.h>

using namespace dtrain;

TEST_CASE("a rayjob's command stands byte-exact behind the script that starts Ray") {
  JobSpec job;
  job.command = {"python", "main.py", "a b", "$x"};
  CHECK(start_command(job) == job.command);
  job.type = "rayjob";
  const auto command = start_command(job);
  REQUIRE(command.size() == 8);
  CHECK(command[0] == "sh");
  CHECK(command[1] == "-c");
  CHECK(command[2].find("ray start --head") != std::string::npos);
  CHECK(std::vector<std::string>(command.begin() + 4, command.end()) == job.command);
}
