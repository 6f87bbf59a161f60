// A worker's connection to one parameter server, or to the chief: what has been asked of it and
// what it answered.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <poll.h>

#include "trainer/job/dialling.h"
#include "trainer/strategy/parameter_server/client.h"
#include "trainer/strategy/parameter_server/protocol.h"

namespace trainer {

/// A server's connection is gone, or the servers have restarted: what was asked will not be
/// answered. The line names server and cause.
struct ServerLost : PeerError {
  using PeerError::PeerError;
};

class ParameterClient::Server final : public FrameHandler {
 public:
  /// `hello` goes to it; the client's are token, arenas and patience.
  Server(ParameterClient& client, LinkPurpose purpose, std::string address,
         const WorkerHello& hello);

  std::string name() const; ///< "ps 1 (host:port)"
  bool is_open() const noexcept { return channel_.has_value(); }
  const ServerState& state() const noexcept { return state_; } ///< As it was heard last.
  /// Of the values that this worker has of it.
  std::int64_t version() const noexcept { return values_.version; }
  /// Of all workers' pushes, those before it came back counted as far as this worker heard of them.
  Score totals() const noexcept;
  /// It is another process than the one that had the values that this worker saw last.
  bool has_lost_values() const noexcept {
    return state_.generation == 0 ||
           (state_.generation == values_.generation && state_.version < values_.version);
  }

  /// Connects and reads its state, trying again for rendezvous_timeout. Throws PeerError then,
  /// ClusterError when it refuses this worker.
  void dial();

  // Each request is answered before the next. Throw ServerLost.
  void ask(FrameType type, Request request = {});
  /// From its snapshot of `version`; -1: from the values that this worker has. Where it has begun
  /// that generation, it goes on in it.
  void begin(std::int64_t generation, std::int64_t version);
  /// The first `count` gradients of the arena are final: those that have not gone go now. Where
  /// the server is lost, push() says so.
  void send_final(std::size_t count);
  void push(Request request); ///< The rest goes with it.
  void goodbye();
  void send_heartbeat() noexcept;

  bool has_answered() const noexcept { return answered_; }
  pollfd to_poll() const { return is_open() ? channel_->to_poll() : pollfd{-1, 0, 0}; }
  /// Reads and writes what can be. Throws ServerLost, ClusterError when the server gives up.
  void advance(short ready);

  ReadParts body_of(const FrameHeader& header) override;
  void handle(const FrameHeader& header) override;

 private:
  bool is_chief() const noexcept { return purpose_ == LinkPurpose::coordinator; }
  std::string title() const; ///< "ps 1"
  template <typename Act>
  void guarded(const Act& act);
  [[noreturn]] void throw_refused(const std::string& why) const;
  void send_gradients(std::size_t count);

  ParameterClient& client_;
  LinkPurpose purpose_;
  std::string address_;
  WorkerHello hello_;
  std::vector<ArenaRange> ranges_;

  std::optional<Channel> channel_;
  ServerState state_;
  ServerState values_;  ///< With which they came.
  Score totals_before_; ///< Of the generations before this one.
  bool answered_ = true;
  std::int64_t request_ = 0; ///< The last one.
  ServerState coming_;
  std::string text_;
  std::string refused_;
  std::size_t sent_ = 0; ///< Of the arena's gradients, before the next push.
  std::string why_ = "there is no connection";
};

} // namespace trainer
