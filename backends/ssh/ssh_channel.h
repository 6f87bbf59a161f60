// Starts ranks on other hosts, each over an ssh of its own (link.h).
//
// All hosts are connected to and asked what they have before anything starts: claim_devices()
// throws with all that is wrong on any of them. A rank lives as long as its connection: a host that
// does not answer is lost after 7 s, and a guard on the host ends the rank of a connection that is
// gone.
//
// The process must have SIGCHLD blocked and no children but what the channel starts.
#pragma once

#include "backends/ssh/cargo.h"
#include "backends/ssh/gathering.h"
#include "backends/supervised/gang/channel.h"

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace dtrain::ssh {

/// The folder of a job's on its hosts, while it runs.
std::string run_folder(const std::string& job_uid);

class SshChannel : public Channel {
 public:
  /// `job_folder`: where its cargo is.
  SshChannel(const std::string& job_uid, int job_folder);

  GangPlace place(const GangPlan& plan) override;
  std::string leave_out_lost(GangPlan& plan) override;
  RankPlace place_one(const GangRank& rank) override;
  bool claim_devices(GangPlan& plan) override;
  void take_anew(const GangRank& rank, RankPlace& place) override;
  std::string where() const override;
  /// The hosts do, as long as a rank runs. From here on its ranks are those to be started.
  void hold_devices(const GangPlan& plan) override { take(plan); }
  std::string node(const GangRank& rank) const override { return rank.host; }
  void start(std::size_t count, const CommandOf& command, const Started& started) override;
  int events() const override { return events_.get(); }
  std::vector<RankEnding> ended() override;
  bool idle() const override { return running_.empty(); }
  void show_hosts(const std::string& hostfile) override;
  void signal_all(int signal) override;
  void signal(RankId process, int signal) override;
  /// The guard on the host has done it before it said that the rank has ended.
  void end_leftovers(RankId /*ended*/, const std::string& /*instance*/) override {}

 private:
  void take(const GangPlan& plan);
  void gather(const GangPlan& plan);
  std::optional<std::string> devices_of(int rank) const;
  std::string devices_at(const std::string& host) const;
  RankPlace place_of(int rank);
  int number_of(const GangRank& rank) const;
  void connect(const std::vector<int>& ranks);
  HostQuestion question(const GangRank& rank) const;
  int free_port(const HostFacts& facts);
  static void tell(Link& link, int signal);
  void beat();

  Cargo cargo_;
  std::string run_;
  GangPlan plan_;
  std::map<std::string, std::size_t> numbers_; ///< Of the hosts.
  Links waiting_;                              ///< Connected; their ranks are not started yet.
  std::map<RankId, std::unique_ptr<Link>> running_;
  std::map<std::string, std::set<int>> given_; ///< Ports, by address.
  RankId started_ = 0;
  Fd children_; ///< SIGCHLD, as a descriptor.
  Fd timer_;    ///< Of the hosts' guards, that somebody is there.
  Fd events_;   ///< Either.
};

} // namespace dtrain::ssh
