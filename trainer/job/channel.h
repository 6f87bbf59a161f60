// Frames (frames.h) on a poll loop: outgoing ones are sent as the connection takes them, incoming
// ones read as they arrive, into memory that the owner names. A malformed frame, or one of a length
// that the owner does not expect, ends the connection before a byte of its body is used.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <utility>
#include <vector>

#include <poll.h>

#include "trainer/job/frames.h"

namespace trainer {

using ReadParts = std::vector<std::span<std::byte>>;
using WriteParts = std::vector<std::span<const std::byte>>;

/// What a channel does with what arrives. Both may throw LinkError to end the connection.
class FrameHandler {
 public:
  virtual ~FrameHandler() = default;
  /// Where a frame's body goes; together header.size long.
  virtual ReadParts body_of(const FrameHeader& header) = 0;
  virtual void handle(const FrameHeader& header) = 0;
};

class Channel {
 public:
  Channel(Fd link, FrameHandler& handler) : link_(std::move(link)), handler_(&handler) {}

  /// Queues a frame and sends what goes out at once. Its body is `copied`, then `parts`, which must
  /// stay as they are until it has been sent.
  template <typename What>
  void send(What what, std::span<const std::byte> copied = {}, WriteParts parts = {}) {
    queue({.what = static_cast<std::uint32_t>(what)}, copied, std::move(parts));
  }

  /// Sends what goes out now. Throws LinkError.
  void flush();
  bool has_unsent() const noexcept { return !queue_.empty(); }

  /// Reads what is there and hands on whole frames. Throws LinkError, also when it was closed.
  void receive();

  /// What poll() is to wait for.
  pollfd to_poll() const noexcept {
    return {link_.get(), static_cast<short>(has_unsent() ? POLLIN | POLLOUT : POLLIN), 0};
  }
  /// Sends and receives what can be, after poll(). Throws LinkError, also where the other side has
  /// been silent for longer than `timeout` seconds.
  void advance(short ready, double timeout);

 private:
  struct Outgoing {
    FrameHeader header;
    std::vector<std::byte> copied;
    WriteParts parts;
    std::size_t sent = 0; ///< Of all three together.
  };
  void queue(FrameHeader header, std::span<const std::byte> copied, WriteParts parts);
  std::size_t receive_into(std::span<std::byte> into);

  Fd link_;
  FrameHandler* handler_;
  std::deque<Outgoing> queue_;
  FrameHeader header_;
  std::size_t header_received_ = 0;
  ReadParts body_;
  std::size_t part_ = 0;          ///< Of body_, the one being filled,
  std::size_t part_received_ = 0; ///< and how far.
  Deadline heard_ = Clock::now();
};

} // namespace trainer
