// A worker's connection to one parameter server, or to the chief: the last request and its answer.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <poll.h>

#include "trainer/job/dialling.h"
#include "trainer/strategy/parameter_server/client.h"
#include "trainer/strategy/parameter_server/protocol.h"

namespace trainer {

/// The connection is lost, or the servers have restarted: pending requests will not be answered.
/// The message names server and cause.
struct ServerLost : PeerError {
  using PeerError::PeerError;
};

class ParameterClient::Server final : public FrameHandler {
 public:
  /// Sends `hello`; token, arenas and timeouts are those of the client.
  Server(ParameterClient& client, LinkPurpose purpose, std::string address,
         const WorkerHello& hello);

  std::string name() const; ///< "ps 1 (host:port)"
  bool is_open() const noexcept { return channel_.has_value(); }
  const ServerState& state() const noexcept { return state_; } ///< As last received.
  /// Version of the values that this worker has from it.
  std::int64_t version() const noexcept { return values_.version; }
  /// Totals of all pushes; those before a restart as far as this worker received them.
  Score totals() const noexcept;
  /// Whether the server has restarted since this worker received its values.
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
  /// The first `count` gradients of the arena are final: sends those that were not sent yet. If the
  /// server is lost, push() reports it.
  void send_final(std::size_t count);
  void push(Request request); ///< Sends the remaining gradients too.
  void goodbye();
  void send_heartbeat() noexcept;

  bool has_answered() const noexcept { return answered_; }
  pollfd to_poll() const { return is_open() ? channel_->to_poll() : pollfd{-1, 0, 0}; }
  /// Reads and writes without blocking. Throws ServerLost; ClusterError if the server gives up.
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
  ServerState values_;  ///< The state that came with the values.
  Score totals_before_; ///< Totals of earlier generations.
  bool answered_ = true;
  std::int64_t request_ = 0; ///< Number of the last request.
  ServerState coming_;
  std::string text_;
  std::string refused_;
  std::size_t sent_ = 0; ///< Gradients sent for the next push.
  std::string why_ = "there is no connection";
};

} // namespace trainer
