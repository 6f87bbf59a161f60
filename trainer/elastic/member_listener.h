// The listener of an elastic member, from its start to its end: a thread that accepts connections
// at an address of the member's own and, after the handshake, answers with the member's state.
//
//   caller -> listener   join REPORT       let me in
//                        ask                 what is your state?
//                        invite ADDRESS      the job is led there: join it
//   listener -> caller   accepted            a proposal follows on this connection
//                        moved NUMBER ADDR   roster NUMBER is led there
//                        busy NUMBER         alive, but cannot be joined now
//                        forming             gathers the job's first roster
//                        leading NUMBER      gathers members of roster NUMBER
//                        over                the job is done
//
// A leader's proposal, over the connection that it accepted:
//   leader -> member   propose PROPOSAL; member -> leader  agree; leader -> member  formed
//   leader -> member   waiting (a keep-alive) · moved · over · failed TEXT
//
// The listener keeps accepted connections until the leader takes them, and sends them keep-alives.
// Newcomers look for the job at the master address: the leader listens there too where the address
// is of its machine and free; else it connects to it once a second, and invites a restarted rank 0
// that forms a job of its own there.
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
  MessageKind kind = MessageKind::busy;
  std::vector<std::byte> body;
};

/// The body of busy, moved, leading and invite.
struct Lead {
  std::uint64_t number = 0; ///< Number of the roster.
  std::uint64_t id = 0;     ///< Id of the sender.
  Address leader;           ///< In moved and invite.
};

void send_message(const Fd& link, MessageKind kind, std::span<const std::byte> body,
                  Deadline deadline);
/// Throws LinkError, also for a frame longer than any message.
Message receive_message(const Fd& link, Deadline deadline);
/// Throws LinkError.
Lead read_lead(const Message& message);

class MemberListener {
 public:
  struct Peer {
    Fd link;
    MemberReport report;

    /// False where the connection is closed, or takes no data for `seconds`.
    bool send(MessageKind kind, std::span<const std::byte> body = {}, double seconds = 0) const;
  };
  /// Also removes those whose connection is closed.
  static void send_keepalives(std::vector<Peer>& peers);

  /// `master`: where the job's first leader listens, all addresses of it.
  MemberListener(Fd listener, std::string token, std::uint64_t id, std::vector<Address> master);
  ~MemberListener();
  MemberListener(const MemberListener&) = delete;
  MemberListener& operator=(const MemberListener&) = delete;

  /// The states. follow() and set_over() tell waiting peers to go elsewhere.
  void set_busy(std::uint64_t number);
  void gather(std::uint64_t number); ///< 0: for the first roster.
  void lead(std::uint64_t number);
  void follow(std::uint64_t number, const Address& leader);
  void set_over();

  /// Listens here as well.
  void add_listener(Fd listener);

  /// Peers accepted since the last call; waits at most so long for one. Only while this member
  /// leads or gathers.
  std::vector<Peer> take_peers(double seconds);
  bool has_peers();
  /// Keeps them for the next take_peers().
  void give_back(std::vector<Peer> peers);

  /// The leader's address in an `invite` that was received.
  std::optional<Address> invitation();

 private:
  enum class State { busy, forming, gathering, leading, following, over };

  void run(Acceptor acceptor);
  void answer(Fd link);
  void enter(State state, std::uint64_t number);
  void change(State state, std::uint64_t number, const Address& leader);
  void hold_master_address(Acceptor& acceptor);

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
