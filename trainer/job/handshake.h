// Who may talk: two ranks prove to each other that they hold the job's token before either uses a
// byte that the other sends.
//
//   acceptor -> dialler   Challenge  version, nonce A
//   dialler  -> acceptor  Hello      version, rank, world size, host, pid, nonce B,
//                                    HMAC-SHA256(token, "dialler" challenge hello)
//   acceptor -> dialler   Welcome    accepted or the reason of refusal,
//                                    HMAC-SHA256(token, "acceptor" challenge hello welcome)
//
// All three have a fixed size. Without a token the HMAC proves only that both run this protocol:
// version, world size and ranks are still checked.
//
// What follows the handshake is neither encrypted nor signed: at a hundred gigabits a second that
// would cost more than it carries. The token keeps out who can only connect; who can also read and
// change packets between the ranks can read and change what they train. Where such a one must be
// feared the network itself has to be private (WireGuard, IPsec, a mesh with TLS).
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <poll.h>

#include "trainer/job/socket.h"

namespace trainer {

enum class LinkPurpose : std::uint32_t {
  rendezvous = 1,
  ring = 2,
  parameter_server = 3,
  coordinator = 4,
  membership = 5
};

/// What one that listens says at its start where the job has no token.
std::string no_token_warning();

/// What a rank says of itself in a Hello.
struct Introduction {
  LinkPurpose purpose = LinkPurpose::rendezvous;
  int rank = 0;
  int world_size = 1;
  std::int64_t pid = 0;
  std::string host;

  std::string name() const; ///< "rank 2 (host-b, pid 123)"
};

Introduction introduce_self(LinkPurpose purpose, int rank, int world_size);

/// The other side read the hello and said no; trying again will not help. One line, says why.
struct RefusedError : ClusterError {
  using ClusterError::ClusterError;
};

/// Dials and shakes hands. Throws LinkError (try again) or RefusedError.
Fd dial_authenticated(const Address& address, const std::string& token, const Introduction& self,
                      Deadline deadline);

/// Accepts connections and shakes hands with all of them at once, so that a silent, slow or
/// foreign one does not delay the others.
class Acceptor {
 public:
  struct Arrival {
    Introduction who;
    Fd link;
  };
  /// Asked once a dialler has proved itself: a refusal, or none to let it in.
  using Judge = std::function<std::optional<std::string>(const Introduction&)>;

  /// Without a judge: whoever has proved itself.
  Acceptor(Fd listener, std::string token, LinkPurpose purpose, Judge judge = {});

  /// Where it listens.
  int port() const { return local_address(listeners_.front()).port(); }
  /// Takes connections here too.
  void add_listener(Fd listener) { listeners_.push_back(std::move(listener)); }

  /// The next rank let in; none at the deadline.
  std::optional<Arrival> next(Deadline deadline);
  /// What poll() is to wait for before next(): listeners, then those that shake hands.
  std::vector<pollfd> to_poll() const;

  /// "2 connections refused, the last from 10.0.0.3:5000: the job token differs"; empty: none.
  std::string refusals() const;

  ~Acceptor();
  Acceptor(Acceptor&&) noexcept;
  Acceptor& operator=(Acceptor&&) = delete;

 private:
  struct Pending;
  void accept_new(const Fd& listener);
  std::optional<Arrival> advance(Pending& pending);
  std::optional<Arrival> judge_hello(Pending& pending);
  void refuse(Pending& pending, const std::string& reason);

  std::vector<Fd> listeners_;
  std::string token_;
  LinkPurpose purpose_;
  Judge judge_;
  std::vector<Pending> pending_;
  int refused_ = 0;
  std::string last_refusal_;
};

} // namespace trainer
