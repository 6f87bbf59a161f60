// One worker's connection at a task that serves it, parameter server or chief.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trainer/job/channel.h"
#include "trainer/job/handshake.h"
#include "trainer/strategy/parameter_server/protocol.h"
#include "trainer/strategy/parameter_server/store.h"

namespace trainer {

class Session final : public FrameHandler {
 public:
  /// Handles a frame. May throw LinkError to end the connection.
  using Serve = std::function<void(Session&, FrameType)>;

  Session(Introduction introduction, Fd link, Serve serve)
      : channel(std::move(link), *this), who_(std::move(introduction)), serve_(std::move(serve)) {}

  /// "worker 1 (host-b, pid 123)"
  std::string name() const;
  int worker() const noexcept { return is_accepted_ ? static_cast<int>(hello_.worker) : -1; }
  bool is_active() const noexcept { return is_accepted_ && !over; }

  /// Accepts the worker: from here on its pushes have the length of its ranges.
  void accept(const WorkerHello& hello);
  const WorkerHello& hello() const noexcept { return hello_; }
  bool shares_memory() const noexcept { return static_cast<bool>(arenas_); }

  const Request& request() const noexcept { return request_; } ///< The last request.
  std::span<const std::byte> values() const noexcept {
    return values_;
  } ///< The values sent with `begin`.

  /// The whole push that waits to become part of an update.
  const std::optional<Request>& push() const noexcept { return push_; }
  void drop_push() { push_.reset(); }
  Contribution contribution() const;

  void send_state(ServerState state, bool answers = true);
  /// Answers the last push or pull with these values of its ranges, one after the other.
  void send_parameters(ServerState state, std::span<const float> values);

  ReadParts body_of(const FrameHeader& header) override;
  void handle(const FrameHeader& header) override;

  Channel channel;
  bool over = false;                     ///< The session is to be removed.
  bool member = false;                   ///< Updates wait for its pushes.
  std::optional<std::int64_t> waits_for; ///< Values of this version or later, asked for.
  std::int64_t clock = 0;                ///< Steps that it has pushed (asynchronous jobs).

 private:
  WireType wire() const { return hello_.gradients(); }

  Introduction who_;
  Serve serve_;
  WorkerHello hello_;
  bool is_accepted_ = false;
  std::vector<ArenaRange> ranges_; ///< Ranges of its arena that this server holds,
  std::size_t held_ = 0;           ///< and their number of floats.
  Request request_;
  std::int64_t waits_since_ = 0; ///< Number of the request for values.
  std::vector<std::byte> values_;
  std::size_t received_ = 0;          ///< Gradients of the next push over TCP,
  std::vector<float> gradients_;      ///< range after range,
  std::vector<std::uint16_t> halves_; ///< as received in 16 bits.
  std::vector<float> outgoing_;       ///< Outgoing values.
  std::optional<Request> push_;
  SharedArenas arenas_;
};

} // namespace trainer
