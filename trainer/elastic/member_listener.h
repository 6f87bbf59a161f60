// Where an elastic member can be reached, from its start to its end: a thread that listens at an
// address of the member's own, and tells whoever comes, after the handshake, how things stand.
//
//   caller -> listener   join REPORT       let me in
//                        ask                 how do you stand?
//                        invite ADDRESS      the job is led elsewhere: come there
//   listener -> caller   accepted            stay on this connection: a proposal follows
//                        moved NUMBER ADDR   roster NUMBER is led there
//                        busy NUMBER         alive, and not to be joined just now
//                        forming             gathers the job's first roster
//                        leading NUMBER      gathers members of roster NUMBER
//                        over                the job is done
//
// A leader's proposal, over the connection that it accepted:
//   leader -> member   propose PROPOSAL; member -> leader  agree; leader -> member  formed
//   leader -> member   waiting (it is alive) · moved · over · failed TEXT
//
// Connections that were accepted wait here until the leader takes them; the listener tells them now
// and then that it is alive. The master address leads newcomers to the job: the leader listens
// there too where the address is its own and free; else it looks there once a second, and invites a
// rank 0 that was restarted and gathers a job of its own.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "trainer/elastic/roster.h"
#include "trainer/job/handshake.h"

namespace trainer {

enum class MessageKind : std::uint32_t {
  join = 1,
  ask,
  invite,
  accepted,
  moved,
  busy,
  forming,
  leading,
  over,
  propose,
  agree,
  formed,
  waiting,
  failed
};

struct Message {
  MessageKind what = MessageKind::busy;
  std::vector<std::byte> body;
};

/// What busy, moved, leading and invite say.
struct Lead {
  std::uint64_t number = 0; ///< Of the roster.
  std::uint64_t id = 0;     ///< Of whoever says it.
  Address leader;           ///< Of moved and invite.
};

void send_message(const Fd& link, MessageKind what, std::span<const std::byte> body,
                  Deadline deadline);
/// Throws LinkError, also where what comes is longer than any message.
Message receive_message(const Fd& link, Deadline deadline);
/// Throws LinkError.
Lead read_lead(const Message& message);

class MemberListener {
 public:
  struct Peer {
    Fd link;
    MemberReport report;

    /// False where it has gone, or does not read for `seconds`.
    bool tell(MessageKind what, std::span<const std::byte> body = {}, double seconds = 0) const;
  };
  /// Tells them that they are waited with, and forgets those that have gone.
  static void reassure(std::vector<Peer>& peers);

  /// `master`: where the job's first leader listens, all addresses of it.
  MemberListener(Fd listener, std::string token, std::uint64_t id, std::vector<Address> master);
  ~MemberListener();
  MemberListener(const MemberListener&) = delete;
  MemberListener& operator=(const MemberListener&) = delete;

  /// The ways it may stand. Whoever waits is told where that is no longer here.
  void be_busy(std::uint64_t number);
  void gather(std::uint64_t number); ///< 0: for the first roster.
  void lead(std::uint64_t number);
  void follow(std::uint64_t number, const Address& leader);
  void be_over();

  /// Listens here as well.
  void add_listener(Fd listener);

  /// Who has come since, for at most so long. Only while this member leads or gathers.
  std::vector<Peer> take_peers(double seconds);
  bool has_peers();
  /// They wait here again.
  void give_back(std::vector<Peer> peers);

  /// Where an invitation asked this member to come.
  std::optional<Address> invitation();

 private:
  enum class State { busy, forming, gathering, leading, following, over };

  void run(Acceptor acceptor);
  void answer(Fd link);
  void enter(State state, std::uint64_t number);
  void change(State state, std::uint64_t number, const Address& leader);
  void look_after_master(Acceptor& acceptor);

  std::string token_;
  std::uint64_t id_;
  std::vector<Address> master_;
  Address own_;

  std::mutex mutex_; ///< Guards what follows.
  std::condition_variable has_peer_;
  State state_ = State::busy;
  std::uint64_t number_ = 0;
  Address leader_;
  std::vector<Peer> peers_;
  std::vector<Fd> new_listeners_;
  std::optional<Address> invitation_;
  bool at_master_ = false;
  bool stopping_ = false;

  std::thread thread_;
};

} // namespace trainer
