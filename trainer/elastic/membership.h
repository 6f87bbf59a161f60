// Elastic jobs: who trains together, from one meeting to the next.
//
// Between two meetings the members are the ranks of a communicator as in any job. When one of them
// fails, every collective throws PeerError, and all meet again; so they do when newcomers are
// there, at a step on which they agree. A meeting ends with a roster (roster.h) under a new number,
// and a communicator of its own: nothing of an earlier one is understood under it.
//
//   first     rank 0 leads at the master address until all WORLD_SIZE ranks are there, or at the
//             rendezvous time-out with as many as --min-workers
//   later     the members of the last roster try one another's doors in rank order: who is reached
//             first leads, and a member whose turn comes to itself leads itself. It waits for those
//             that are not known to have ended, but not for long where the others may go on
//             (speaks_for() in roster.h), and for newcomers where they are fewer than --min-workers
//   newcomer  asks at the master address, where the leader listens when it can, and is told where
//             the job is led; it is let in at the next meeting. So is a member that was stopped and
//             comes back: its state is of an older roster, and is replaced
//
// Two phases form a roster: all agree to the proposal, then the leader says that it stands. What a
// member keeps of a training run is its own affair; it says of which roster and step its state is,
// and the meeting names the rank whose state is the newest.
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
  int min_workers = 1; ///< Fewer wait for others, at most for the rendezvous time-out.
  int max_workers = 0; ///< Others wait until one goes; 0: any number.
};

/// The training state that a member has.
struct Holding {
  std::uint64_t number = 0; ///< Of the roster under which it was shared; 0: never.
  std::int64_t step = -1;   ///< -1: there is none.
  bool is_complete = false; ///< Nothing is left to train: those that are there are enough.
};

/// From one meeting to the next.
struct Epoch {
  std::unique_ptr<Communicator> communicator; ///< Null: the job is over without this member, …
  bool is_left_behind = false; ///< … which was out of touch while the others went on, and ended.
  std::uint64_t number = 0;    ///< Of its roster.
  int source = 0;              ///< The rank whose state is the newest.
  std::int64_t step = -1;      ///< Of that state; -1: there is none yet.
  std::vector<std::string> lost;   ///< Known to rank 0 alone: "rank 2 (host-b, pid 7)",
  std::vector<std::string> joined; ///< with the rank they had, and have.
};

class Membership {
 public:
  /// Begins to listen. Throws ClusterError.
  Membership(const Cluster& cluster, const CommOptions& options, const ElasticLimits& limits);
  ~Membership();
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;

  /// Returns once a roster is formed and its ranks are connected. Throws PeerError where that broke
  /// off, to be called again; Error where there are too few at the time-out.
  Epoch meet(const Holding& holding);

  /// On the leader, rank 0: whether anyone waits to be let in who could be.
  bool has_newcomers();

  /// Tells all that come from now on that the job is over.
  void be_over() { listener_->be_over(); }

 private:
  struct Ending;

  Ending look_around();
  Ending lead();
  Ending join(const Address& address);
  Ending stay(Fd link, const std::function<void()>& on_message);
  std::optional<Ending> ask(const Member& member);
  std::optional<Ending> propose(std::vector<MemberListener::Peer>& present);
  std::vector<Member> missing(const std::vector<MemberListener::Peer>& present) const;
  MemberIds ids_of(const std::vector<MemberListener::Peer>& present) const;
  bool speaks(const std::vector<MemberListener::Peer>& present) const;
  bool may_go_on(const std::vector<MemberListener::Peer>& present) const;
  bool are_all_here(const std::vector<MemberListener::Peer>& present,
                    const std::vector<Member>& absent) const;
  void note_refused(const Member& member);
  void note_ended(const Member& member);
  double answer_timeout() const { return options_.peer_timeout / 2; }
  Epoch enter(Ending ending);
  const Roster& newest() const;
  std::vector<const Roster*> rosters(const std::vector<MemberListener::Peer>& present) const;
  std::string complaint(const std::vector<MemberListener::Peer>& present);

  Cluster cluster_;
  CommOptions options_;
  ElasticLimits limits_;
  std::vector<Address> master_;
  MemberReport report_;
  MemberIds closed_;    ///< Members whose machine has closed a connection of theirs.
  MemberIds ended_;     ///< Known to have.
  MemberIds witnessed_; ///< Of those, the ones that cannot have gone on without this member.
  std::shared_ptr<LastContact> contact_ = std::make_shared<LastContact>(Clock::now());
  std::map<std::uint64_t, Clock::time_point> seen_; ///< Members, at a meeting, after that.
  bool at_master_ = false;
  Deadline deadline_;
  bool is_complete_ = false;
  std::string why_; ///< The last call failed.
  std::unique_ptr<MemberListener> listener_;
};

} // namespace trainer
