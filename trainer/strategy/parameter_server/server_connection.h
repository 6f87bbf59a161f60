// A worker's connection to one parameter server, or to the chief: what has been asked of it and
// what it answered.
#pragma once

#include <list>
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
struct ServerLost : Error {
  using Error::Error;
};

class ParameterClient::Server final : public FrameHandler {
 public:
  /// `title`: "ps 1". Throws UsageError for an address that is not host:port.
  Server(LinkPurpose purpose, std::string title, const std::string& address, std::string token,
         const WorkerHello& hello, std::span<float> parameters = {},
         std::span<float> gradients = {});

  std::string name() const; ///< "ps 1 (host:port)"
  bool is_open() const noexcept { return channel_.has_value(); }
  std::int64_t version() const noexcept { return version_; }
  const ServerWelcome& welcome() const noexcept { return welcome_; }
  /// Of all workers' pushes, those before it came back counted as far as this worker heard of them.
  Score totals() const noexcept;
  /// The first of the workers that are there, or have done all they had to.
  std::int64_t first_worker() const noexcept { return first_worker_; }

  /// Connects and reads the welcome, trying again until the deadline. Throws PeerError then,
  /// ClusterError when it refuses this worker.
  void dial(Deadline deadline, double peer_timeout);

  // Requests; each is answered before the next. Throw ServerLost.
  void ask_how_it_stands();
  /// From its snapshot of `version`; -1: from the values that this worker has.
  void begin(std::int64_t generation, std::int64_t version);
  /// The first `count` gradients of the arena are final: those that have not gone go now. Where
  /// the server is lost, push() says so.
  void send_final(std::size_t count);
  void push(const FrameFields& fields); ///< The rest goes with it.
  void pull(std::int64_t version);
  void ask_for_work(const WorkReport& report);
  void goodbye();
  void send_heartbeat() noexcept;

  bool has_answered() const noexcept { return answered_; }
  bool has_unsent() const noexcept { return is_open() && channel_->has_unsent(); }

  /// Its welcome() has come.
  bool is_welcome() const noexcept { return welcomed_; }
  /// It is another process than the one that had the values that this worker saw last.
  bool has_lost_values() const noexcept {
    return welcome_.generation == 0 ||
           (welcome_.generation == generation_ && welcome_.version < version_);
  }
  std::int64_t newest_snapshot() const { return welcome_.snapshots.front(); }

  /// The batch that it gave last; -1: none is left.
  std::int64_t work() const noexcept { return work_; }

  pollfd to_poll() const;
  /// Reads and writes what can be. Throws ServerLost, ClusterError when the server gives up.
  void advance(short ready, double peer_timeout);
  void wait(Deadline deadline, double peer_timeout); ///< For something to advance with.

  ReadParts body_of(const FrameHeader& header) override;
  void handle(const FrameHeader& header) override;

 private:
  template <typename Act>
  void guarded(const Act& act);
  void ask(FrameType type, FrameFields fields);
  void send_gradients(std::size_t count);
  void meet(Deadline deadline, double peer_timeout);

  LinkPurpose purpose_;
  std::string title_;
  std::string address_;
  TaskAddress where_;
  std::string token_;
  WorkerHello hello_;
  std::vector<ArenaRange> ranges_;
  std::span<float> parameters_;
  std::span<float> gradients_;

  std::optional<Channel> channel_;
  ServerWelcome welcome_;
  std::int64_t version_ = 0;
  std::int64_t generation_ = 0; ///< That this worker has begun with it.
  Score totals_;                ///< As this generation counts,
  Score totals_before_;         ///< and those before it did.
  std::int64_t first_worker_ = 0;
  bool welcomed_ = false;
  bool answered_ = true;
  std::int64_t request_ = 0;
  std::int64_t work_ = -1;
  std::string refused_;
  Deadline heard_;
  FrameFields fields_; ///< Of the frame that comes.
  ServerWelcome coming_;
  std::string text_;
  std::size_t sent_ = 0;              ///< Gradients of the next push,
  std::vector<std::uint16_t> halves_; ///< and as they are on their way, where that is in 16 bits.
  std::string why_ = "there is no connection";
};

} // namespace trainer
