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

/// Receives the frames of a channel. Both functions may throw LinkError to end the connection.
class FrameHandler {
 public:
  virtual ~FrameHandler() = default;
  /// Memory for the body of a frame, header.size bytes in total.
  virtual ReadParts body_of(const FrameHeader& header) = 0;
  virtual void handle(const FrameHeader& header) = 0;
};

class Channel {
 public:
  Channel(Fd link, FrameHandler& handler) : link_(std::move(link)), handler_(&handler) {}

  /// Queues a frame, and sends what can be sent at once. Its body is `copied`, then `parts`, which
  /// must not change until it has been sent.
  template <typename What>
  void send(What what, std::span<const std::byte> copied = {}, WriteParts parts = {}) {
    queue({.what = static_cast<std::uint32_t>(what)}, copied, std::move(parts));
  }

  /// Sends what can be sent now. Throws LinkError.
  void flush();
  bool has_unsent() const noexcept { return !queue_.empty(); }

  /// Reads available bytes and delivers complete frames. Throws LinkError, also on a closed
  /// connection.
  void receive();

  /// The events for poll().
  pollfd to_poll() const noexcept {
    return {link_.get(), static_cast<short>(has_unsent() ? POLLIN | POLLOUT : POLLIN), 0};
  }
  /// Sends and receives after poll(). Throws LinkError, also if the other side has been silent for
  /// longer than `timeout` seconds.
  void advance(short ready, double timeout);

 private:
  struct Outgoing {
    FrameHeader header;
    std::vector<std::byte> copied;
    WriteParts parts;
    std::size_t sent = 0; ///< Bytes of all three together.
  };
  void queue(FrameHeader header, std::span<const std::byte> copied, WriteParts parts);
  std::size_t receive_into(std::span<std::byte> into);

  Fd link_;
  FrameHandler* handler_;
  std::deque<Outgoing> queue_;
  FrameHeader header_;
  std::size_t header_received_ = 0;
  ReadParts body_;
  std::size_t part_ = 0;          ///< Part of body_ being filled,
  std::size_t part_received_ = 0; ///< and bytes received of it.
  Deadline heard_ = Clock::now();
};

} // namespace trainer
