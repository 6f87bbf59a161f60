// Elastic jobs: which workers train together, from one meeting to the next.
//
// Between two meetings the members are the ranks of a communicator as in any job. When one of them
// fails, every collective throws PeerError, and all meet again; so they do for newcomers, at a step
// on which all agree. A meeting ends with a roster (roster.h) under a new number and a communicator
// of its own, which takes no message of an earlier one.
//
//   first     rank 0 leads at the master address until all WORLD_SIZE ranks are there, or at the
//             rendezvous time-out with as many as --min-workers
//   later     each member of the last roster calls the others in rank order: the first that answers
//             leads, and a member that reaches its own rank leads. The leader waits for those not
//             known to have ended, but only briefly where the others have a quorum
//             (has_quorum_of() in roster.h), and for newcomers below --min-workers
//   newcomer  calls the master address, where the leader listens if it can, and is sent to the
//             leader; it takes part from the next meeting on. So does a member that was stopped and
//             continued: its state is of an older roster, and is replaced
//
// A roster is formed in two phases: all agree to the proposal, then the leader confirms it. A
// meeting moves no training state: each member reports the roster and step of its own, and the
// meeting names the rank with the newest.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainer/collectives/communicator.h"
#include "trainer/elastic/member_listener.h"
#include "trainer/elastic/roster.h"

namespace trainer {

struct ElasticLimits {
  int min_workers = 1; ///< Fewer wait, at most for the rendezvous time-out.
  int max_workers = 0; ///< More wait until one leaves; 0: no limit.
};

/// A member's training state.
struct MemberState {
  std::uint64_t number = 0; ///< Number of the roster under which the state was shared; 0: never.
  std::int64_t step = -1;   ///< -1: there is none.
  bool is_complete = false; ///< Nothing is left to train: any number of members may continue.
};

/// The ranks that train together from one meeting to the next.
struct Generation {
  std::unique_ptr<Communicator> communicator; ///< Null: the job is over for this member,
  bool is_left_behind = false;                ///< which was cut off, and the others have finished.
  std::uint64_t number = 0;                   ///< Number of the roster.
  int source = 0;                             ///< The rank whose state is the newest.
  std::int64_t step = -1;                     ///< Step of that state; -1: there is none yet.
  std::vector<std::string> lost; ///< "rank 2 (host-b, pid 7)", with the old rank. On rank 0 alone.
  std::vector<std::string> joined; ///< Likewise, with the new rank.
};

class Membership {
 public:
  /// Starts listening. Throws ClusterError.
  Membership(const Cluster& cluster, const CommOptions& options, const ElasticLimits& limits);
  ~Membership();
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;

  /// Returns once a roster is formed and its ranks are connected. Throws PeerError where a peer was
  /// lost meanwhile: call it again; Error with too few members at the time-out.
  Generation meet(const MemberState& state);

  /// On the leader, rank 0: whether a newcomer waits and --max-workers leaves room for it.
  bool has_newcomers();

  /// From now on whoever calls is told that the job is over.
  void set_over() { listener_->set_over(); }

 private:
  struct MeetingResult;

  MeetingResult find_leader();
  MeetingResult lead();
  MeetingResult join(const Address& address);
  MeetingResult await_proposal(Fd link, const std::function<void()>& on_message);
  std::optional<MeetingResult> ask(const Member& member);
  std::optional<MeetingResult> propose(std::vector<MemberListener::Peer>& present);
  std::vector<Member> missing(const std::vector<MemberListener::Peer>& present) const;
  MemberIds ids_of(const std::vector<MemberListener::Peer>& present) const;
  bool has_quorum(const std::vector<MemberListener::Peer>& present) const;
  bool may_continue(const std::vector<MemberListener::Peer>& present) const;
  bool is_everyone_present(const std::vector<MemberListener::Peer>& present,
                           const std::vector<Member>& absent) const;
  void on_refused(const Member& member);
  void on_ended(const Member& member);
  double lost_timeout() const { return options_.peer_timeout / 2; }
  Generation enter(MeetingResult result);
  const Roster& newest() const;
  std::vector<const Roster*> rosters(const std::vector<MemberListener::Peer>& present) const;
  std::string timeout_message(const std::vector<MemberListener::Peer>& present);

  Cluster cluster_;
  CommOptions options_;
  ElasticLimits limits_;
  std::vector<Address> master_;
  MemberReport report_;
  MemberIds closed_;    ///< Members whose connection their machine has closed.
  MemberIds ended_;     ///< Members known to have ended,
  MemberIds witnessed_; ///< and of those the ones that cannot have continued without this one.
  std::shared_ptr<LastContact> contact_ = std::make_shared<LastContact>(Clock::now());
  std::map<std::uint64_t, Clock::time_point> seen_; ///< Members, last heard of in a meeting.
  bool at_master_ = false;
  Deadline deadline_;
  bool is_complete_ = false;
  std::string why_; ///< Why the last call failed.
  std::unique_ptr<MemberListener> listener_;
};

} // namespace trainer
