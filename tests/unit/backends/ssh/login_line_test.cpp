#include "backends/ssh/login_line.h"
#include "backends/supervised/programs.h"
#include "backends/support/os/subprocess.h"
#include "submit/errors.h"

#include <doctest/doctest.h>

#include <chrono>
#include <string>
#include <vector>

using namespace dtrain;
using namespace dtrain::ssh;

TEST_CASE("every login shell hands on a script and words byte for byte, and runs none of them") {
  std::string every;
  for (int c = 1; c < 256; ++c) {
    every += static_cast<char>(c);
  }
  const std::vector<std::string> words{"",
                                       "it's",
                                       "a \"b\" $HOME `id` $(id)",
                                       R"(ends with \)",
                                       R"(\' \\ \n)",
                                       "lines\n\nend\n",
                                       "!! !x",
                                       "~ ^ =ls %1",
                                       "(id)",
                                       "*",
                                       "-n",
                                       "x_",
                                       "é\xff",
                                       every};
  std::string expected;
  for (const auto& word : words) {
    expected += "<" + word + ">";
  }
  const std::string script =
      "# It's \"one\" of two lines \\ !\nfor w; do printf '<%s>' \"$w\"; done; cat\n";
  int tried = 0;
  for (const char* shell : {"sh", "dash", "bash", "zsh", "fish", "tcsh", "csh", "mksh"}) {
    if (find_program(shell).empty()) {
      continue;
    }
    ++tried;
    const auto result = run_command({.argv = {shell, "-c", login_line(script, words)},
                                     .input = "and what it is fed",
                                     .limit = std::chrono::seconds(60)});
    INFO(shell << ": " << result.errors);
    CHECK(result.out == expected + "and what it is fed");
    CHECK(result.ending.good());
  }
  CHECK(tried > 1);
  CHECK_THROWS_AS(login_line("true", {std::string(1, '\0')}), UsageError);
}
