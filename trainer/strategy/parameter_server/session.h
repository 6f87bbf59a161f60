// One worker's connection at a task that serves it, parameter server or chief.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trainer/job/channel.h"
#include "trainer/job/handshake.h"
#include "trainer/strategy/parameter_server/protocol.h"
#include "trainer/strategy/parameter_server/store.h"

namespace trainer {

class Session;

/// What a session asks of its task. All may throw LinkError to end the connection.
class SessionOwner {
 public:
  virtual ~SessionOwner() = default;
  virtual void hello(Session& session, const WorkerHello& hello) = 0;
  virtual void welcome(Session& session) = 0;
  virtual void begin(Session& /*session*/, const FrameFields& /*fields*/,
                     std::span<const std::byte> /*values*/) {
    not_due();
  }
  virtual void pushed(Session& /*session*/) { not_due(); }
  virtual void pull(Session& /*session*/) { not_due(); }
  virtual void ask(Session& /*session*/, const WorkReport& /*report*/) { not_due(); }
  virtual void goodbye(Session& session) = 0;
};

class Session final : public FrameHandler {
 public:
  Session(Introduction introduction, Fd link, SessionOwner& owner)
      : who(std::move(introduction)), channel(std::move(link), *this), owner_(owner) {}

  /// "worker 1 (host-b, pid 123)"
  std::string name() const;
  int worker() const noexcept { return is_accepted_ ? static_cast<int>(hello_.worker) : -1; }

  /// Accepts the worker: from here on its pushes have the length of its ranges.
  void accept(const WorkerHello& hello);
  bool shares_memory() const noexcept { return arenas_.size() > 0; }

  /// The whole push that waits to become part of an update.
  const std::optional<FrameFields>& push() const noexcept { return push_; }
  void drop_push() { push_.reset(); }
  Contribution contribution() const;

  /// Sends its ranges' values, one after the other, with these fields.
  void send_parameters(FrameFields fields, std::span<const float> values);

  ReadParts body_of(const FrameHeader& header) override;
  void handle(const FrameHeader& header) override;

  Introduction who;
  Channel channel;
  bool over = false;                     ///< To be removed.
  Deadline heard = Clock::now();         ///< When its last frame came.
  bool member = false;                   ///< Updates wait for its pushes.
  std::optional<std::int64_t> waits_for; ///< Values of this version or later, asked for.
  std::int64_t generation = -1;          ///< In which it pushes and pulls; -1: none yet.
  std::int64_t request = 0;              ///< Of what is to be answered.
  std::int64_t clock = 0;                ///< Steps that it has pushed (asynchronous jobs).
  std::uint64_t shared_bytes = 0;        ///< Moved through shared memory.

 private:
  WireType wire() const { return hello_.gradients(); }

  SessionOwner& owner_;
  WorkerHello hello_;
  bool is_accepted_ = false;
  std::vector<ArenaRange> ranges_; ///< Of its arena, what this server holds,
  std::size_t held_ = 0;           ///< and floats of these.
  FrameFields fields_;             ///< Of the frame that comes.
  WorkReport report_;
  std::vector<std::byte> values_;     ///< Of a begin.
  std::size_t received_ = 0;          ///< Gradients of the next push over TCP,
  std::vector<float> gradients_;      ///< range after range,
  std::vector<std::uint16_t> halves_; ///< as it arrives where it is of 16 bits.
  std::vector<float> outgoing_;       ///< Values on their way.
  std::optional<FrameFields> push_;
  SharedFile::Mapping arenas_;
};

} // namespace trainer
