// The gang alone: its channel is a script, and no process is started.
#include "backends/supervised/gang/gang.h"

#include "../temporary_folder.h"
#include "submit/errors.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

namespace dtrain {
namespace {

using Lines = std::vector<std::string>;

class FakeChannel : public Channel {
 public:
  /// What a rank does when it is started for the nth time, from 0.
  std::function<void(FakeChannel&, int rank, int times)> script;
  std::function<void(FakeChannel&)> after_leftovers = {};
  bool heeds_term = true;
  bool leaves_daemon = false;                      ///< Which only KILL ends.
  int starts_at_most = -1;                         ///< Processes; -1: any number.
  std::function<void(FakeChannel&)> at_ended = {}; ///< When it is asked who has.
  /// Once it waits for a host, in a run after the first; it does so until it is stopped.
  std::function<void(FakeChannel&)> at_wait = {};
  std::set<std::string> silent;
  std::string spare;    ///< A host that has room for one more.
  std::string unplaced; ///< An instance for which there is no place.
  Lines calls;
  Lines held;  ///< The instances whose devices are.
  Lines freed; ///< The instances whose devices were.

  /// How the rank that runs has ended; with neither, its host was lost.
  void end(int rank, std::optional<int> exit_code, std::optional<int> signal = {}) {
    const auto found = std::find_if(running_.begin(), running_.end(),
                                    [&](const auto& entry) { return entry.second == rank; });
    REQUIRE(found != running_.end());
    ended_.push_back({found->first, exit_code, signal, {}});
    running_.erase(found);
    poke();
  }
  void print(int rank, std::string_view text) {
    REQUIRE(write(errors_.at(rank).get(), text.data(), text.size()) ==
            static_cast<ssize_t>(text.size()));
  }

  /// As of a process that has no pipes here.
  void hand_over(int rank, std::string_view text) {
    const auto found = std::find_if(running_.begin(), running_.end(),
                                    [&](const auto& entry) { return entry.second == rank; });
    REQUIRE(found != running_.end());
    output_(found->first, Stream::err, text);
  }
  void poke() { REQUIRE(eventfd_write(events_.get(), 1) == 0); }

  void on_output(const OutputSink& sink) override { output_ = sink; }
  std::set<std::string> suspects() const override { return silent; }
  void on_wait(const std::function<bool()>& stops) override { stops_ = stops; }
  GangPlace place(const GangPlan& plan) override {
    if (at_wait && last_ > 0) {
      std::exchange(at_wait, {})(*this);
      calls.emplace_back("wait");
      REQUIRE(stops_());
      throw WaitStopped();
    }
    GangPlace place;
    place.master_addr = "node0";
    place.master_port = 1;
    for (const auto& rank : plan.ranks) {
      place.ranks.push_back(place_one(rank));
    }
    return place;
  }
  RankPlace place_one(const GangRank& rank) override {
    if (rank.instance == unplaced) {
      throw EngineError("no GPU is free");
    }
    return {.role = rank.role, .index = rank.index, .host = node(rank), .port = 2};
  }
  std::optional<RankPlace> move(GangRank& rank) override {
    rank.host = std::exchange(spare, "");
    return rank.host.empty() ? std::nullopt : std::optional(place_one(rank));
  }
  bool claim_devices(GangPlan&) override { return true; }
  std::string where() const override { return "here"; }
  void hold_devices(const GangPlan& plan) override {
    held.clear();
    for (const auto& rank : plan.ranks) {
      held.push_back(rank.instance);
    }
  }
  void free_devices(RankId, const std::string& instance) override { freed.push_back(instance); }
  std::string node(const GangRank& rank) const override {
    return rank.host.empty() ? fmt::format("node{}", rank.index) : rank.host;
  }

  void start(std::size_t count, const CommandOf& command, const Started& started) override {
    calls.push_back(fmt::format("start {}", count));
    for (std::size_t i = 0; i < count; ++i) {
      if (starts_at_most == 0) {
        throw EngineError("no more processes");
      }
      --starts_at_most;
      const int rank = command(i).rank;
      const RankId id = ++last_;
      running_[id] = rank;
      started(i, {id, id, pipe_of(rank, outs_), pipe_of(rank, errors_)});
      if (script) {
        script(*this, rank, times_[rank]++);
      }
    }
  }
  int events() const override { return events_.get(); }
  std::vector<RankEnding> ended() override {
    eventfd_t value = 0;
    static_cast<void>(eventfd_read(events_.get(), &value));
    if (const auto now = at_ended) { // Which may set another.
      now(*this);
    }
    return std::exchange(ended_, {});
  }
  bool idle() const override { return running_.empty() && ended_.empty() && !leaves_daemon; }

  void signal_all(int signal) override {
    calls.push_back(fmt::format("all {}", sigabbrev_np(signal)));
    leaves_daemon = leaves_daemon && signal != SIGKILL;
    if (signal == SIGKILL || heeds_term) {
      for (auto& [id, rank] : std::exchange(running_, {})) {
        ended_.push_back({id, {}, signal});
      }
    }
    poke();
  }
  void signal(RankId process, int signal) override {
    calls.push_back(fmt::format("{} {}", running_.at(process), sigabbrev_np(signal)));
    end(running_.at(process), {}, signal);
  }
  void end_leftovers(RankId, const std::string& instance) override {
    calls.push_back("leftovers of " + instance);
    if (after_leftovers) {
      after_leftovers(*this);
    }
  }

 private:
  static Fd pipe_of(int rank, std::map<int, Fd>& ours) {
    std::array<int, 2> ends{};
    REQUIRE(pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) == 0);
    ours[rank] = Fd(ends[1]);
    return Fd(ends[0]);
  }
  OutputSink output_;
  std::function<bool()> stops_;
  Fd events_{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  RankId last_ = 0;
  std::map<RankId, int> running_;
  std::vector<RankEnding> ended_;
  std::map<int, int> times_;
  std::map<int, Fd> outs_;
  std::map<int, Fd> errors_;
};

struct Fixture {
  test::TemporaryFolder temporary;
  JobStore store{temporary / "dtrain", "local"};
  JobFolder folder = store.stage();
  FakeChannel channel;
  GangPlan plan;
  JobRecord record;
  sigset_t before{};

  Fixture() {
    const auto set = gang_signals();
    sigprocmask(SIG_BLOCK, &set, &before);
    plan.job = {"default", "train"};
    plan.command = {"train"};
    plan.grace_period_ms = 60'000; // No pause of this machine ends ranks by KILL.
    for (int i = 0; i < 3; ++i) {
      GangRank rank;
      rank.instance = fmt::format("worker-{}", i);
      rank.index = i;
      plan.ranks.push_back(rank);
    }
  }
  ~Fixture() { sigprocmask(SIG_SETMASK, &before, nullptr); }
  Fixture(const Fixture&) = delete;
  Fixture& operator=(const Fixture&) = delete;

  void add_workers(int count) {
    for (int i = 0; i < count; ++i) {
      GangRank joining = plan.ranks[0];
      joining.index = static_cast<int>(plan.ranks.size());
      joining.instance = fmt::format("worker-{}", joining.index);
      plan.ranks.push_back(joining);
    }
  }

  JobStatus run() {
    record.status = Gang::initial_status(plan, channel);
    Gang gang(
        plan, [this] { return plan; }, channel, folder, record, Fd());
    gang.run();
    return folder.record()->status;
  }
};

TEST_CASE_FIXTURE(Fixture,
                  "a gang is started as one batch and has succeeded when all exit with 0") {
  channel.script = [](FakeChannel& all, int rank, int) { all.end(rank, 0); };
  const auto status = run();
  CHECK(status.phase == Phase::succeeded);
  CHECK(channel.calls == Lines{"start 3"});
  CHECK(status.instances[2].pid == 3);
}

TEST_CASE_FIXTURE(Fixture, "the first rank to fail is the cause, and takes the others along") {
  channel.script = [](FakeChannel& all, int rank, int) {
    if (rank == 2) {
      all.print(1, "no such layer\n");
      all.end(1, 3);
    }
  };
  const auto status = run();
  CHECK(status.phase == Phase::failed);
  REQUIRE(status.cause);
  CHECK(status.cause->message == "worker-1 (rank 1) on node1 ended with exit code 3");
  CHECK(status.cause->last_stderr == Lines{"no such layer"});
  CHECK(channel.calls == Lines{"start 3", "all TERM"});
  CHECK(status.instances[0].signal == SIGTERM);
  CHECK(status.instances[0].phase == Phase::terminated);
  CHECK(status.instances[1].phase == Phase::failed);
}

TEST_CASE_FIXTURE(Fixture, "where two fail at once the first that is told of is the cause") {
  channel.script = [](FakeChannel& all, int rank, int) {
    if (rank == 2) {
      all.end(2, 5);
      all.end(0, 6);
    }
  };
  const auto status = run();
  REQUIRE(status.cause);
  CHECK(status.cause->rank == 2);
  CHECK(status.instances[0].phase == Phase::failed);
  CHECK(status.instances[1].phase == Phase::terminated);
}

TEST_CASE_FIXTURE(Fixture, "a lost host is the cause, with neither exit code nor signal") {
  channel.script = [](FakeChannel& all, int rank, int) {
    if (rank == 2) {
      all.end(1, {}, {});
    }
  };
  const auto status = run();
  CHECK(status.phase == Phase::failed);
  REQUIRE(status.cause);
  CHECK(status.cause->message == "worker-1 (rank 1) on node1 was lost: its host does not answer");
  CHECK(!status.cause->exit_code);
  CHECK(!status.cause->signal);
  CHECK(status.instances[1].phase == Phase::failed);
}

TEST_CASE_FIXTURE(Fixture, "what a channel hands over of a rank is in that rank's log") {
  channel.script = [](FakeChannel& all, int rank, int) {
    if (rank == 2) {
      all.at_ended = [](FakeChannel& now) {
        now.hand_over(1, "no such layer\n");
        now.end(1, 3);
        now.at_ended = nullptr;
      };
    }
  };
  const auto status = run();
  REQUIRE(status.cause);
  CHECK(status.cause->last_stderr == Lines{"no such layer"});
}

TEST_CASE_FIXTURE(Fixture, "a host that does not answer is said, and is no failure") {
  Lines reasons;
  channel.at_ended = [&](FakeChannel& all) {
    reasons.push_back(record.status.reason);
    all.silent = reasons.size() == 1 ? std::set<std::string>{"node1"} : std::set<std::string>();
    if (reasons.size() == 3) {
      for (int rank = 0; rank < 3; ++rank) {
        all.end(rank, 0);
      }
      all.at_ended = nullptr;
    }
    all.poke();
  };
  CHECK(run().phase == Phase::succeeded);
  CHECK(reasons == Lines{"", "node1 does not answer", ""});
}

TEST_CASE_FIXTURE(Fixture, "a worker whose host is lost is started on another that has room") {
  plan.min_workers = 2;
  plan.max_restarts = 2;
  channel.spare = "node7";
  channel.script = [](FakeChannel& all, int rank, int times) {
    if (rank == 2) {
      all.end(1, {}, {});
    } else if (times == 1) {
      for (int each = 0; each < 3; ++each) {
        all.end(each, 0);
      }
    }
  };
  const auto status = run();
  CHECK(status.phase == Phase::succeeded);
  CHECK(status.instances[1].node == "node7");
  CHECK(channel.calls == Lines{"start 3", "leftovers of worker-1", "start 1"});
}

TEST_CASE_FIXTURE(Fixture, "a lost host costs a restart as a failure does") {
  plan.max_restarts = 1;
  channel.script = [](FakeChannel& all, int rank, int times) {
    if (times == 1) {
      all.end(rank, 0);
    } else if (rank == 2) {
      all.end(0, {}, {});
    }
  };
  const auto status = run();
  CHECK(status.phase == Phase::succeeded);
  CHECK(status.restarts == 1);
  CHECK(channel.calls == Lines{"start 3", "all TERM", "start 3"});
}

TEST_CASE_FIXTURE(Fixture, "ranks that do not heed TERM get KILL after the grace period") {
  channel.heeds_term = false;
  plan.grace_period_ms = 1;
  channel.script = [](FakeChannel& all, int rank, int) {
    if (rank == 2) {
      all.end(2, {}, SIGSEGV);
    }
  };
  const auto status = run();
  CHECK(status.cause->signal == SIGSEGV);
  CHECK(channel.calls == Lines{"start 3", "all TERM", "all KILL"});
}

TEST_CASE_FIXTURE(Fixture, "a job is not over before what its ranks left behind is") {
  channel.leaves_daemon = true;
  plan.grace_period_ms = 1;
  channel.script = [](FakeChannel& all, int rank, int) { all.end(rank, 0); };
  const auto status = run();
  CHECK(status.phase == Phase::succeeded);
  CHECK(channel.calls == Lines{"start 3", "all TERM", "all KILL"});
}

TEST_CASE_FIXTURE(Fixture, "where not all can be started, those that were are ended") {
  channel.starts_at_most = 2;
  const auto status = run();
  CHECK(status.phase == Phase::failed);
  CHECK(status.reason == "no more processes");
  CHECK(channel.calls == Lines{"start 3", "all TERM"});
  CHECK(status.instances[1].signal == SIGTERM);
}

TEST_CASE_FIXTURE(Fixture, "an elastic job's worker is started anew alone, and told apart") {
  plan.min_workers = 1;
  plan.max_workers = 3;
  plan.max_restarts = 1;
  channel.script = [](FakeChannel& all, int rank, int times) {
    if (rank == 2 && times == 0) {
      all.end(2, 1);
    } else if (times == 1) {
      for (int each = 0; each < 3; ++each) {
        all.end(each, 0);
      }
    }
  };
  const auto status = run();
  CHECK(status.phase == Phase::succeeded);
  CHECK(status.restarts == 0);
  CHECK(channel.calls == Lines{"start 3", "leftovers of worker-2", "start 1"});
  CHECK(channel.freed.size() == 3); // Not when it failed: it was to come back.
}

TEST_CASE_FIXTURE(Fixture, "an elastic job goes on without a lost host while enough are left") {
  plan.min_workers = 2;
  plan.max_workers = 3;
  channel.script = [](FakeChannel& all, int rank, int) {
    if (rank == 2) {
      all.end(2, {}, {});
      all.end(0, 0);
      all.end(1, 0);
    }
  };
  const auto status = run();
  CHECK(status.phase == Phase::succeeded);
  CHECK(status.instances[2].phase == Phase::failed);
  CHECK(channel.calls == Lines{"start 3"});
  CHECK(channel.freed == Lines{"worker-2", "worker-0", "worker-1"});
}

/// A plan of workers on these hosts.
GangPlan plan_on(const Lines& hosts) {
  GangPlan plan;
  for (const auto& host : hosts) {
    GangRank rank;
    rank.instance = fmt::format("worker-{}", plan.ranks.size());
    rank.host = host;
    plan.ranks.push_back(rank);
  }
  return plan;
}

Lines hosts_of(const GangPlan& plan) {
  Lines hosts;
  for (const auto& rank : plan.ranks) {
    hosts.push_back(rank.host);
  }
  return hosts;
}

TEST_CASE("ranks take the hosts that are left, while they are enough") {
  auto plan = plan_on({"a", "a", "b", "c"});
  plan.min_workers = 2;
  CHECK(!leave_out_hosts(plan, {"a", "c"}));
  CHECK(plan.ranks.size() == 4);
  REQUIRE(leave_out_hosts(plan, {"b"}));
  CHECK(hosts_of(plan) == Lines{"a", "a", "c"});
  CHECK(plan.ranks[2].instance == "worker-2");
}

TEST_CASE("a launcher and TensorBoard cost no worker, and are beside the first that is left") {
  auto plan = plan_on({"a", "a", "b", "c", "a"});
  plan.min_workers = 2;
  plan.ranks.front().role = "launcher";
  plan.ranks.back().role = "tensorboard";
  REQUIRE(leave_out_hosts(plan, {"a"}));
  CHECK(hosts_of(plan) == Lines{"b", "b", "c", "b"});
}

TEST_CASE("where one place is left out the last worker goes, and those behind it move up") {
  auto plan = plan_on({"a", "a", "b", "b", "c"});
  plan.min_workers = 3;
  plan.ranks.back().role = "evaluator";
  CHECK(leave_out_place(plan, "worker-1") == "worker-3");
  CHECK(hosts_of(plan) == Lines{"a", "b", "b", "c"});
  CHECK(leave_out_place(plan, "worker-0").empty());
  CHECK(hosts_of(plan) == Lines{"a", "b", "b", "c"});
}

TEST_CASE_FIXTURE(Fixture, "once a host is lost, what fails is not started anew alone") {
  plan.min_workers = 2;
  plan.max_restarts = 2;
  channel.script = [](FakeChannel& all, int rank, int time) {
    if (rank == 2 && time == 0) {
      all.end(2, {}, {});
      all.end(0, 1);
    } else if (time == 1) {
      all.end(rank, 0);
    }
  };
  const auto status = run();
  CHECK(status.phase == Phase::succeeded);
  CHECK(status.restarts == 1);
  CHECK(std::count(channel.calls.begin(), channel.calls.end(), "start 3") == 2);
  CHECK(std::count(channel.calls.begin(), channel.calls.end(), "start 1") == 0);
}

TEST_CASE_FIXTURE(Fixture, "of workers lost at once as many are moved as may be started anew") {
  plan.min_workers = 1;
  plan.max_restarts = 1;
  channel.spare = "a";
  channel.script = [](FakeChannel& all, int rank, int time) {
    if (time == 1) {
      all.spare = "b";
      all.end(0, 0);
      all.end(rank, 0);
    } else if (rank == 2) {
      all.end(1, {}, {});
      all.end(2, {}, {});
    }
  };
  const auto status = run();
  CHECK(status.phase == Phase::succeeded);
  CHECK(channel.calls == Lines{"start 3", "leftovers of worker-1", "start 1"});
  CHECK(status.instances[1].node == "a");
  CHECK(status.instances[2].phase == Phase::failed);
}

TEST_CASE_FIXTURE(Fixture, "a gang whose workers all wait to be started anew has not ended") {
  plan.min_workers = 3;
  plan.max_restarts = 4;
  channel.script = [](FakeChannel& all, int rank, int) { all.end(rank, 3); };
  const auto status = run();
  CHECK(status.phase == Phase::failed);
  REQUIRE(status.cause);
  CHECK(status.cause->exit_code == 3);
}

TEST_CASE_FIXTURE(Fixture, "a suspended gang is ended and kept") {
  channel.script = [](FakeChannel&, int rank, int) {
    if (rank == 2) {
      raise(SIGTSTP);
    }
  };
  const auto status = run();
  CHECK(status.phase == Phase::suspended);
  CHECK(!status.cause);
  CHECK(channel.calls == Lines{"start 3", "all TERM"});
  CHECK(status.instances[1].phase == Phase::suspended);
}

TEST_CASE_FIXTURE(Fixture,
                  "a worker that is scaled away is asked alone, and what it left is ended") {
  plan.min_workers = 1;
  plan.max_workers = 3;
  channel.script = [this](FakeChannel&, int rank, int) {
    if (rank == 2) {
      plan.ranks.pop_back();
      raise(SIGHUP);
    }
  };
  channel.after_leftovers = [](FakeChannel& all) {
    all.end(0, 0);
    all.end(1, 0);
  };
  const auto status = run();
  CHECK(status.phase == Phase::succeeded);
  CHECK(status.instances.size() == 2);
  CHECK(channel.calls == Lines{"start 3", "2 TERM", "leftovers of worker-2"});
}

TEST_CASE_FIXTURE(Fixture, "a restart that waits for a host stops where the job is to end") {
  plan.max_restarts = 1;
  channel.script = [](FakeChannel& all, int rank, int) {
    if (rank == 2) {
      all.end(rank, 3);
    }
  };
  channel.at_wait = [](FakeChannel&) { raise(SIGTERM); };
  const auto status = run();
  CHECK(status.phase == Phase::failed);
  CHECK(status.reason == "stopped on request");
  CHECK(status.restarts == 0);
  CHECK(status.instances[2].exit_code == 3);
  CHECK(channel.calls == Lines{"start 3", "all TERM", "wait", "all TERM"});
}

TEST_CASE_FIXTURE(Fixture, "a restart that waits for a host stops where the job is suspended") {
  plan.max_restarts = 1;
  channel.script = [](FakeChannel& all, int rank, int) {
    if (rank == 2) {
      all.end(rank, 3);
    }
  };
  channel.at_wait = [](FakeChannel&) { raise(SIGTSTP); };
  const auto status = run();
  CHECK(status.phase == Phase::suspended);
  CHECK(status.restarts == 1);
}

TEST_CASE_FIXTURE(Fixture, "a restart that waits for a host goes on with the plan of a scale") {
  plan.max_restarts = 1;
  plan.min_workers = 1;
  plan.max_workers = 3;
  channel.script = [](FakeChannel& all, int rank, int times) {
    if (times > 0) {
      all.end(rank, 0);
    } else if (rank == 2) {
      for (int each = 0; each < 3; ++each) {
        all.end(each, {}, {}); // Hosts that are lost: one alone would be started anew.
      }
    }
  };
  channel.at_wait = [this](FakeChannel&) {
    plan.ranks.pop_back();
    raise(SIGHUP);
  };
  const auto status = run();
  CHECK(status.phase == Phase::succeeded);
  CHECK(status.instances.size() == 2);
  CHECK(channel.calls == Lines{"start 3", "all TERM", "wait", "start 2"});
}

TEST_CASE_FIXTURE(Fixture, "workers that join are started as one batch") {
  plan.min_workers = 1;
  plan.max_workers = 5;
  channel.script = [this](FakeChannel& all, int rank, int) {
    if (rank == 2) {
      add_workers(2);
      raise(SIGHUP);
    } else if (rank == 4) {
      for (int each = 0; each < 5; ++each) {
        all.end(each, 0);
      }
    }
  };
  const auto status = run();
  CHECK(status.phase == Phase::succeeded);
  CHECK(channel.calls == Lines{"start 3", "start 2"});
}

TEST_CASE_FIXTURE(Fixture, "workers that join are started though one behind them has no place") {
  plan.min_workers = 1;
  plan.max_workers = 6;
  channel.unplaced = "worker-4";
  channel.script = [this](FakeChannel&, int rank, int) {
    if (rank == 2) {
      add_workers(3);
      raise(SIGHUP);
    }
  };
  std::string reason;
  int asked = 0;
  channel.at_ended = [&](FakeChannel& all) {
    if (++asked == 2) { // Once the plan has been followed.
      reason = record.status.reason;
      for (int each = 3; each >= 0; --each) {
        all.end(each, 0);
      }
    }
  };
  const auto status = run();
  CHECK(status.phase == Phase::succeeded);
  CHECK(channel.calls == Lines{"start 3", "start 1"});
  CHECK(status.instances.size() == 4);
  CHECK(reason == "worker-4 was not started: no GPU is free");
  CHECK(channel.held == Lines{"worker-0", "worker-1", "worker-2", "worker-3"});
}

} // namespace
} // namespace dtrain
