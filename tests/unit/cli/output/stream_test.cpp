#include "cli/output/stream.h"
#include "submit/errors.h"

#include <doctest/doctest.h>

#include <csignal>
#include <cstdlib>
#include <map>
#include <string>

#include <fcntl.h>
#include <unistd.h>

using namespace dtrain;

namespace {

/// Whether a pipe would get colour with these variables.
bool colour_in_pipe(const std::map<std::string, std::string>& variables) {
  for (const char* name : {"FORCE_COLOR", "NO_COLOR", "CLICOLOR_FORCE", "CLICOLOR"}) {
    unsetenv(name);
  }
  for (const auto& [name, value] : variables) {
    setenv(name.c_str(), value.c_str(), 1);
  }
  int ends[2] = {};
  REQUIRE(pipe(ends) == 0);
  const bool colour = Terminal::of(ends[1]).colour;
  close(ends[0]);
  close(ends[1]);
  for (const auto& [name, value] : variables) {
    unsetenv(name.c_str());
  }
  return colour;
}

} // namespace

TEST_CASE("FORCE_COLOR wins over NO_COLOR, that over CLICOLOR_FORCE") {
  CHECK_FALSE(colour_in_pipe({}));
  CHECK(colour_in_pipe({{"CLICOLOR_FORCE", "1"}}));
  CHECK_FALSE(colour_in_pipe({{"CLICOLOR_FORCE", "0"}}));
  CHECK_FALSE(colour_in_pipe({{"CLICOLOR_FORCE", "1"}, {"NO_COLOR", "1"}}));
  CHECK(colour_in_pipe({{"FORCE_COLOR", "1"}, {"NO_COLOR", "1"}}));
  CHECK_FALSE(colour_in_pipe({{"FORCE_COLOR", "0"}, {"CLICOLOR_FORCE", "1"}}));
}

TEST_CASE("a full disk is an error that names standard output") {
  const int fd = open("/dev/full", O_WRONLY | O_CLOEXEC);
  REQUIRE(fd >= 0);
  Stream stream(fd, {});
  stream.write("x");
  CHECK_THROWS_WITH_AS(stream.flush(), "cannot write to standard output: No space left on device",
                       Error);
  CHECK_NOTHROW(stream.flush());
  close(fd);
}

TEST_CASE("a reader that has gone is not an error to talk about") {
  int ends[2] = {};
  REQUIRE(pipe(ends) == 0);
  close(ends[0]);
  const auto old = std::signal(SIGPIPE, SIG_IGN);
  Stream stream(ends[1], {});
  stream.write("x");
  CHECK_THROWS_AS(stream.flush(), BrokenPipe);
  std::signal(SIGPIPE, old);
  close(ends[1]);
}

TEST_CASE("styles are written only where there is colour") {
  CHECK(styled({}, Style::red, "x") == "x");
  CHECK(styled({.colour = true}, Style::red, "x") == "\x1b[31mx\x1b[0m");
}
