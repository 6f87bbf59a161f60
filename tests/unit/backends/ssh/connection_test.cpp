#include "backends/ssh/connection.h"
#include "backends/support/os/spawn.h"
#include "tests/unit/backends/temporary_folder.h"

#include <doctest/doctest.h>
#include <poll.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

using namespace dtrain;
using namespace dtrain::ssh;
using dtrain::test::TemporaryFolder;

namespace {

/// An agent on this machine, as a login's sh would start it.
struct NearAgent {
  TemporaryFolder state;
  Connection link{
      "here",
      {.job = "ab12", .number = 3, .host_timeout = std::chrono::seconds(60), .grace_ms = 1500},
      [this](const std::string&, const std::string&, const std::string& command) {
        return std::vector<std::string>{"env",
                                        "XDG_STATE_HOME=" + state.path(),
                                        "DTRAIN_LOCAL_GPUS=3",
                                        "DTRAIN_GPU_CLAIMS=" + state.path() + "/gpus",
                                        "sh",
                                        "-c",
                                        command};
      }};
  std::map<RankId, std::string> printed;
  std::map<RankId, RankEnding> ended;
  int heartbeats = 0;
  bool is_there = true;

  void take(const AgentFrame& frame) {
    if (frame.kind == AgentFrame::Kind::heartbeat) {
      ++heartbeats;
    } else if (frame.kind == AgentFrame::Kind::ended) {
      ended[frame.key] = ending_of(frame);
    } else {
      printed[frame.key] += frame.text;
    }
  }

  /// Hears it until then, or its end.
  template <class Condition>
  bool hear_until(Condition is_so) {
    const auto deadline = Connection::Clock::now() + std::chrono::seconds(60);
    while (is_there && !is_so() && Connection::Clock::now() < deadline) {
      pollfd waits{link.out(), POLLIN, 0};
      constexpr int k_round_ms = 100;
      if (poll(&waits, 1, k_round_ms) > 0) {
        is_there = link.receive([this](const AgentFrame& frame) { take(frame); });
      }
      link.flush();
    }
    return is_so();
  }
};

} // namespace

TEST_CASE("a link starts ranks on its host, hears what they print, and how they end") {
  NearAgent agent;
  CHECK_FALSE(agent.link.is_open());
  agent.link.start(1, "begin() { exec setsid sh -c 'echo first; exit 165'; }");
  agent.link.start(2, "begin() { exec setsid sleep 600; }");
  agent.link.run(7, "begin() { exec echo asked; }");
  agent.link.heartbeat();
  CHECK(agent.hear_until([&] { return agent.ended.size() == 2 && agent.heartbeats == 1; }));
  CHECK(agent.link.is_open());
  CHECK(agent.printed == std::map<RankId, std::string>{{1, "first\n"}, {7, "asked\n"}});
  CHECK(agent.ended.at(1).exit_code == 165);
  CHECK(agent.ended.at(7).exit_code == 0);
  agent.link.signal(2, SIGTERM);
  CHECK(agent.hear_until([&] { return agent.ended.contains(2); }));
  CHECK(agent.ended.at(2).signal == SIGTERM);
  CHECK_FALSE(agent.link.is_suspect(agent.link.heard() + std::chrono::seconds(7)));
  CHECK(agent.link.is_suspect(agent.link.heard() + std::chrono::seconds(8)));
}

TEST_CASE("a link's host gives each rank GPUs of its own") {
  NearAgent agent;
  agent.link.claim(1, 2, "");
  agent.link.claim(2, 1, "");
  agent.link.claim(3, 2, "");
  agent.link.free(1);
  agent.link.claim(4, 2, "");
  CHECK(agent.hear_until([&] { return agent.printed.size() == 4; }));
  CHECK(agent.printed ==
        std::map<RankId, std::string>{
            {1, "0,1"}, {2, "2"}, {3, "lacks 2 free GPUs: 0 of its 3 are free"}, {4, "0,1"}});
}

TEST_CASE("the end of a link is the end of its ranks and its agent") {
  NearAgent agent;
  agent.link.start(
      1, "begin() { exec setsid sh -c 'exec 2>/dev/null; trap \"echo asked to end; exit 3\" TERM; "
         "echo ready; while :; do sleep 0.1; done'; }");
  CHECK(agent.hear_until([&] { return agent.printed[1] == "ready\n"; }));
  agent.link.end();
  CHECK(agent.hear_until([&] { return !agent.is_there; }) == true);
  CHECK(agent.printed[1] == "ready\nasked to end\n");
  CHECK(agent.ended.at(1).exit_code == 3);
  CHECK(wait_for_child(agent.link.pid()) == 0);
  agent.link.forget_process();
  CHECK(agent.link.said().empty());
}

TEST_CASE("what a host has of a job lies in a folder of the user's alone") {
  NearAgent agent;
  agent.link.show_hosts("h1 slots=1\nh2 slots=2\n");
  agent.link.run(1, "begin() { exec cat \"$run/hostfile\"; }");
  CHECK(agent.hear_until([&] { return agent.ended.contains(1); }));
  CHECK(agent.printed[1] == "h1 slots=1\nh2 slots=2\n");
  namespace fs = std::filesystem;
  const auto folder = fs::path(agent.state.path()) / "dtrain/hosts/ab12/3";
  CHECK(fs::status(folder).permissions() == fs::perms::owner_all);
  CHECK(fs::status(folder.parent_path()).permissions() == fs::perms::owner_all);
}

TEST_CASE("a host is sent bytes beside its ranks, block by block, and answers each") {
  NearAgent agent;
  std::string bytes;
  for (int i = 0; i < 100'000; ++i) {
    bytes += static_cast<char>(i % 251);
  }
  constexpr std::size_t k_block = 40'000;
  for (std::size_t at = 0; at < bytes.size(); at += k_block) {
    agent.link.put(std::string_view(bytes).substr(at, k_block));
  }
  agent.link.run(1, "begin() { exec cat \"$run/upload.$agent\"; }");
  CHECK(agent.hear_until([&] { return agent.ended.contains(1) && agent.heartbeats == 3; }));
  CHECK(agent.printed[1] == bytes);
}
