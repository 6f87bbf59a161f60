#include "backends/support/os/process.h"

#include <doctest/doctest.h>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

namespace dtrain {
namespace {

/// A child that waits for a signal; ended with the test.
class Child {
 public:
  Child() : pid_(fork()) {
    if (pid_ == 0) {
      while (true) {
        pause();
      }
    }
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
};

TEST_CASE("a process is known by pid and start time, and a zombie has ended") {
  const Child child;
  const auto info = read_process(child.pid());
  REQUIRE(info);
  CHECK(info->parent == getpid());
  CHECK(is_running(info->id));
  CHECK(open_process(info->id));
  auto other = info->id;
  ++other.start_time;
  CHECK(!is_running(other));
  CHECK(!open_process(other));
  CHECK(!signal_process(other, SIGKILL));
  CHECK(is_running(info->id));

  CHECK(signal_process(info->id, SIGKILL));
  siginfo_t ended{};
  waitid(P_PID, static_cast<id_t>(child.pid()), &ended, WEXITED | WNOWAIT);
  CHECK(!is_running(info->id));
  CHECK(!open_process(info->id));
}

TEST_CASE("no process has pid 0 or less") {
  CHECK(!is_running({}));
  CHECK(!open_process({-1, 0}));
  CHECK(!signal_process({0, 0}, SIGKILL));
}

TEST_CASE("descendants are found at any depth") {
  std::array<int, 2> ends{};
  REQUIRE(pipe(ends.data()) == 0);
  const pid_t child = fork();
  if (child == 0) {
    const pid_t grandchild = fork();
    if (grandchild == 0) {
      setsid();
      const pid_t self = getpid();
      static_cast<void>(!write(ends[1], &self, sizeof(self)));
    }
    while (true) {
      pause();
    }
  }
  pid_t grandchild = 0;
  REQUIRE(read(ends[0], &grandchild, sizeof(grandchild)) == sizeof(grandchild));
  std::vector<pid_t> found;
  for (const auto& process : descendants(getpid())) {
    found.push_back(process.id.pid);
  }
  CHECK(found == std::vector<pid_t>{child, grandchild});
  kill(grandchild, SIGKILL);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  close(ends[0]);
  close(ends[1]);
}

} // namespace
} // namespace dtrain
