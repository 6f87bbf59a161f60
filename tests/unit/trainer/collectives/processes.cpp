#include "processes.h"

#include <algorithm>
#include <array>
#include <csignal>

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace trainer::test {
namespace {

std::string read_all(const Fd& fd) {
  std::string text;
  std::array<char, 1024> part{};
  for (ssize_t got = 0; (got = read(fd.get(), part.data(), part.size())) > 0;) {
    text.append(part.data(), static_cast<std::size_t>(got));
  }
  return text;
}

[[noreturn]] void run_child(const Cluster& cluster, const CommOptions& options,
                            const std::function<void(Communicator&)>& body, const Fd& output) {
  std::string thrown;
  try {
    const auto communicator = connect(cluster, options);
    body(*communicator);
  } catch (const std::exception& error) {
    thrown = error.what();
  }
  (void)!write(output.get(), thrown.data(), thrown.size());
  _exit(0);
}

} // namespace

Processes::Processes(int world_size, const CommOptions& options,
                     const std::function<void(Communicator&)>& body) {
  for (int rank = 0; rank < world_size; ++rank) {
    std::array<int, 2> ends{};
    REQUIRE(pipe2(ends.data(), O_CLOEXEC) == 0);
    Fd output(ends[0]);
    const Fd input(ends[1]);
    const pid_t pid = fork();
    REQUIRE(pid >= 0);
    if (pid == 0) {
      run_child(cluster_of(rank, world_size, port_.number()), options, body, input);
    }
    children_.push_back({pid, std::move(output)});
  }
}

std::vector<Ended> Processes::end(const std::vector<int>& stopped) {
  std::vector<Ended> ended(children_.size());
  const auto collect = [&](std::size_t rank) {
    ended[rank].thrown = read_all(children_[rank].output);
    REQUIRE(waitpid(children_[rank].pid, &ended[rank].status, 0) == children_[rank].pid);
  };
  const auto is_stopped = [&](std::size_t rank) {
    return std::find(stopped.begin(), stopped.end(), static_cast<int>(rank)) != stopped.end();
  };
  for (std::size_t rank = 0; rank < children_.size(); ++rank) {
    if (!is_stopped(rank)) {
      collect(rank);
    }
  }
  for (const int rank : stopped) {
    kill(children_[static_cast<std::size_t>(rank)].pid, SIGKILL);
    collect(static_cast<std::size_t>(rank));
  }
  return ended;
}

} // namespace trainer::test
