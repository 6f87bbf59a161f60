// Starts ranks on other hosts, over one connection to each (connection.h).
//
// All hosts are connected to and asked what they have before anything starts: claim_devices()
// throws with all that is wrong on any of them. The connections stay open until the job's end, from
// one run to the next too. A host that is lost (connections.h) takes its ranks with it, and an
// agent that hears nothing from here any more ends its ranks.
//
// The process must have SIGCHLD blocked.
#pragma once

#include "backends/ssh/connections.h"
#include "backends/ssh/payload.h"
#include "backends/ssh/preflight.h"
#include "backends/ssh/requests.h"
#include "backends/supervised/gang/channel.h"

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace dtrain::ssh {

class SshChannel : public Channel {
 public:
  /// `job_folder`: where its payload is. `is_new`: the hosts have nothing of the job yet.
  SshChannel(const std::string& job_uid, int job_folder, bool is_new);
  ~SshChannel() override;
  SshChannel(const SshChannel&) = delete;
  SshChannel& operator=(const SshChannel&) = delete;

  void on_wait(const std::function<bool()>& stops) override { stops_ = stops; }
  GangPlace place(const GangPlan& plan) override;
  std::string leave_out_lost(GangPlan& plan) override;
  RankPlace place_one(const GangRank& rank) override;
  bool claim_devices(GangPlan& plan) override;
  void prepare_restart(const GangRank& rank, RankPlace& place) override;
  std::optional<RankPlace> move(GangRank& rank) override;
  void free_devices(RankId ended, const std::string& instance) override;
  std::string left_out() override;
  std::string where() const override;
  void hold_devices(const GangPlan& plan) override;
  std::string node(const GangRank& rank) const override { return rank.host; }
  void on_output(const OutputSink& sink) override { output_ = sink; }
  void start(std::size_t count, const CommandOf& command, const Started& started) override;
  int events() const override { return connections_.events(); }
  std::vector<RankEnding> ended() override;
  std::set<std::string> suspects() const override { return connections_.suspects(); }
  bool idle() const override { return running_.empty() && endings_.empty(); }
  void show_hosts(const std::string& hostfile) override;
  void signal_all(int signal) override;
  void signal(RankId process, int signal) override;
  /// The agent has done it before it said that the rank has ended.
  void end_leftovers(RankId /*ended*/, const std::string& /*instance*/) override {}
  void close() override;

 private:
  using Clock = Connections::Clock;

  void take(const GangPlan& plan);
  void free_claim(const std::string& instance);
  void claim(GangPlan& plan, const std::vector<GangRank>& planned);
  void ask_all();
  void ask(const std::vector<const GangRank*>& ranks, const std::function<bool()>& stops);
  HostQuestion question(const std::string& host, const std::vector<const GangRank*>& ranks) const;
  void take_frame(const AgentFrame& frame);
  void lose(const std::string& host, const std::string& why);
  std::vector<std::string> hosts_with_room(const std::string& but);
  bool takes_other_host(GangRank& rank, const std::function<bool()>& stops);
  bool leave_out_faulty(const std::map<std::string, FaultyPlace>& faulty);
  void hand_over_claims();
  void remember_moves(const std::vector<GangRank>& planned);
  bool any_gpus() const;
  std::optional<std::string> devices_of(const GangRank& rank) const;
  std::string devices_at(const std::string& host) const;
  RankPlace place_of(const GangRank& rank);
  int free_port(const HostFacts& facts);

  Payload payload_;
  bool leaves_nothing_; ///< Nothing has run, and the hosts have nothing from before.
  GangPlan plan_;
  Connections connections_;
  RequestServer requests_;
  HostsKnown known_;
  std::map<std::string, std::string> moved_; ///< Hosts of instances that are not where planned.
  bool is_fresh_ = false;                    ///< All hosts were asked, and nothing has run since.
  std::map<RankId, std::string> running_;    ///< Hosts of running ranks.
  std::vector<RankEnding> endings_;          ///< Not yet reported.
  OutputSink output_;
  std::function<bool()> stops_ = [] { return false; };
  /// Ends a wait beside running ranks.
  std::function<bool()> stops_or_ended_ = [this] { return stops_() || !endings_.empty(); };
  std::map<std::string, std::set<int>> given_; ///< Ports, by address.
  std::map<RankId, Clock::time_point> killed_; ///< When each was last sent SIGKILL.
  std::optional<Clock::time_point> killing_;   ///< Since when all are.
  Clock::time_point killed_all_;
};

} // namespace dtrain::ssh
