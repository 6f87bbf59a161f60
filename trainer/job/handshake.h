// Authentication: two ranks prove to each other that they hold the job's token before either uses a
// byte from the other.
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
// Traffic after the handshake is neither encrypted nor signed, which would be too slow at a hundred
// gigabits a second. The token keeps out attackers who can only connect; one who can also read and
// change packets between ranks can read and change what they train. Against such attackers use a
// private network (WireGuard, IPsec, a mesh with TLS).
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

/// The warning of a listener whose job has no token.
std::string no_token_warning();

/// A rank's description of itself in a Hello.
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
  /// Called once a dialler is authenticated: returns a refusal, or none to accept it.
  using Judge = std::function<std::optional<std::string>(const Introduction&)>;

  /// Without a judge: accepts every authenticated dialler.
  Acceptor(Fd listener, std::string token, LinkPurpose purpose, Judge judge = {});

  /// The listening address.
  int port() const { return local_address(listeners_.front()).port(); }
  /// Also accepts connections on this listener.
  void add_listener(Fd listener) { listeners_.push_back(std::move(listener)); }

  /// The next accepted rank; none at the deadline.
  std::optional<Arrival> next(Deadline deadline);
  /// Descriptors to poll before next(): listeners, then connections in their handshake.
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
