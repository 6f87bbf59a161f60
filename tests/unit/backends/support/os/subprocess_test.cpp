#include "backends/support/os/subprocess.h"

#include "backends/support/os/process.h"
#include "submit/errors.h"

#include "tests/unit/backends/temporary_folder.h"
#include "tests/unit/waiting.h"

#include <doctest/doctest.h>

#include <array>
#include <chrono>
#include <csignal>
#include <unistd.h>

using namespace dtrain;
using std::chrono::milliseconds;

namespace {

CommandResult shell(const std::string& script, std::string input = {}) {
  return run_command({.argv = {"sh", "-c", script}, .input = std::move(input)});
}

} // namespace

TEST_CASE("a program's outputs are kept apart, with how it ended") {
  const auto result = shell("echo out; echo err >&2; exit 3");
  CHECK(result.out == "out\n");
  CHECK(result.errors == "err\n");
  CHECK(result.ending.exit_code == 3);
  CHECK(!result.ending.good());
  CHECK(shell("kill -TERM $$").ending.signal == SIGTERM);
  CHECK(shell("true").ending.good());
}

TEST_CASE("arguments, variables and input arrive byte-exact, with no shell between") {
  const std::string odd = "a b\n'\"$(id)`\\\xff";
  const auto words = run_command({.argv = {"printf", "%s|", odd, "", "*"}});
  CHECK(words.out == odd + "||*|");
  const auto variable = run_command(
      {.argv = {"sh", "-c", "printf %s \"$ODD\""}, .env = {{"ODD", "first"}, {"ODD", odd}}});
  CHECK(variable.out == odd);
  const std::string bytes = odd + std::string(1, '\0') + "end";
  CHECK(shell("cat", bytes).out == bytes);
  CHECK(shell("cat").out == "");
  CHECK(run_command({.argv = {"pwd"}, .folder = "/"}).out == "/\n");
}

TEST_CASE("more than a pipe holds on each side stalls nobody") {
  const std::string much(1U << 20U, 'x');
  const auto result = shell("cat >&2; head -c 1000000 /dev/zero", much);
  CHECK(result.out.size() == 1'000'000);
  CHECK(result.errors.size() == Subprocess::k_errors_kept);
  CHECK(shell("exec true", much).ending.good()); // Which reads none of it.
}

TEST_CASE("one that is left ends by itself, and what it had said is known") {
  const test::TemporaryFolder folder;
  const std::string file = folder / "ended";
  Subprocess program(
      {.argv = {"sh", "-c", "echo warning >&2; echo 17; sleep 0.2; echo >\"$1\"", "sh", file},
       .limit = std::chrono::minutes(1)});
  CHECK(program.read_some() == "17\n");
  program.leave();
  CHECK(program.errors() == "warning\n");
  unit::wait_until([&] { return access(file.c_str(), F_OK) == 0; });
}

TEST_CASE("a daemon that holds the outputs is not waited for") {
  const auto result = shell("sleep 600 & echo $!");
  CHECK(result.ending.good());
  CHECK(kill(std::stoi(result.out), SIGKILL) == 0);
}

TEST_CASE("what runs past its limit is killed with all it started") {
  // In which the shell has to say what it has started.
  const auto limit =
      std::chrono::duration_cast<milliseconds>(std::chrono::duration<double>(unit::time_out(0.2)));
  const auto result =
      run_command({.argv = {"sh", "-c", "sleep 600 & echo $!; wait"}, .limit = limit});
  CHECK(result.ending.late);
  CHECK(!result.ending.good());
  unit::wait_until([&] { // A killed process may take a moment to end.
    const auto left = read_process(std::stoi(result.out));
    return !left || left->zombie;
  });
}

TEST_CASE("a program that is not there is named") {
  CHECK_THROWS_WITH_AS(run_command({.argv = {"no-such-program"}}),
                       "no-such-program cannot be run: No such file or directory", EngineError);
}

TEST_CASE("signals that this program ignores or blocks are the started one's to take") {
  sigset_t blocked;
  sigset_t before;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGTERM);
  sigprocmask(SIG_BLOCK, &blocked, &before);
  const auto old = std::signal(SIGPIPE, SIG_IGN);
  const auto term = shell("kill -TERM $$");
  const auto broken = shell("kill -PIPE $$");
  std::signal(SIGPIPE, old);
  sigprocmask(SIG_SETMASK, &before, nullptr);
  CHECK(term.ending.signal == SIGTERM);
  CHECK(broken.ending.signal == SIGPIPE);
}

TEST_CASE("what is no longer wanted is killed") {
  pid_t pid = 0;
  {
    Subprocess process({.argv = {"sh", "-c", "echo $$; exec sleep 600"}});
    pid = std::stoi(std::string(process.read_some()));
  }
  CHECK(!read_process(pid));
}

TEST_CASE("a program that is fed answers each line, and its end is no signal of ours") {
  Subprocess process(
      {.argv = {"sh", "-c", "while read -r x && [ $x != end ]; do echo $((x * 2)); done"},
       .is_fed = true});
  process.feed("21\n");
  CHECK(process.read_some() == "42\n");
  process.feed("4\n");
  CHECK(process.read_some() == "8\n");
  process.feed("end\n");
  CHECK(process.read_some().empty());
  process.feed("lost\n");
  CHECK(process.wait().good());
}

TEST_CASE("a program that is fed reads to the end of what it is fed") {
  Subprocess process({.argv = {"cat"}, .is_fed = true});
  process.feed("all ");
  process.feed("of it");
  process.end_input();
  const CommandResult result = process.result();
  CHECK(result.out == "all of it");
  CHECK(result.ending.good());
}

TEST_CASE("what is inherited stays, what is set wins, and the last setting of all") {
  const std::array<const char*, 4> base{"PATH=/bin", "RANK=7", "odd", nullptr};
  CHECK(merge_environment(base.data(), {{"RANK", "0"}, {"X", "1"}, {"X", "2"}}) ==
        std::vector<std::string>{"PATH=/bin", "odd", "RANK=0", "X=2"});
  CHECK(merge_environment(base.data(), {{"X", "1"}}, {"RANK", "odd", "none"}) ==
        std::vector<std::string>{"PATH=/bin", "X=1"});
}
