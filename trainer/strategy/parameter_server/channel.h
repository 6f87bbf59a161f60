// Frames between a worker and a parameter server or the coordinator, over one authenticated
// connection.
//
// A frame is a header of 72 bytes and `bytes` of payload. Everything is little-endian. The payload
// of a push and of parameters is range after range; values are float32, gradients of the type that
// the hello says. A hello and a welcome carry JSON (see protocol.h). A header with another magic,
// an unknown type or a length that the receiver does not expect ends the connection before a byte
// of it is used.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "trainer/job/socket.h"

namespace trainer {

enum class FrameType : std::uint32_t {
  hello = 1,   ///< Worker: who it is, the job and the ranges that it expects. JSON.
  welcome,     ///< Server: accepted; step is its version. JSON.
  refused,     ///< Server: not accepted; the payload says why.
  initial,     ///< Worker: first values of all ranges.
  push,        ///< Worker: gradients of `step`. The payload is empty with shared memory.
  parameters,  ///< Server: values of version `step`. The payload is empty with shared memory.
  pull,        ///< Worker: asks for parameters of version `step` or later.
  rollback,    ///< Worker: a server came back at version `step`; extra is that one's incarnation.
  rolled_back, ///< Server: pushes were dropped, this is version `step`.
  beat,        ///< Either: alive.
  goodbye,     ///< Worker: done with training.
  ask,         ///< Worker to coordinator: a WorkReport; what next?
  work,        ///< Coordinator: batch `step` is yours; -1: nothing is left to do.
};
inline constexpr auto k_last_frame_type = static_cast<std::uint32_t>(FrameType::work);

struct FrameHeader {
  static constexpr std::uint32_t k_magic = 0x50534454;
  std::uint32_t magic = k_magic;
  FrameType type = FrameType::beat;
  std::int64_t step = 0;
  std::uint64_t bytes = 0;
  double weight = 0; ///< Of a push: its samples.
  double loss = 0;   ///< A push's own sum; of parameters: all workers' since the job's start.
  std::int64_t correct = 0;
  std::int64_t count = 0;
  std::int64_t extra = 0;   ///< Of parameters: the first worker that is there or done.
  std::int64_t request = 0; ///< Of a push or pull, and of the parameters that answer it.
};
static_assert(sizeof(FrameHeader) == 72);

using ReadParts = std::vector<std::span<std::byte>>;
using WriteParts = std::vector<std::span<const std::byte>>;

/// What a channel does with what arrives. Both may throw LinkError to end the connection.
class FrameHandler {
 public:
  virtual ~FrameHandler() = default;
  /// Where a frame's payload goes; together header.bytes long.
  virtual ReadParts payload_of(const FrameHeader& header) = 0;
  virtual void handle(const FrameHeader& header) = 0;
};

class Channel {
 public:
  Channel(Fd link, FrameHandler& handler) : link_(std::move(link)), handler_(&handler) {}

  int fd() const noexcept { return link_.get(); }

  /// Queues a frame and sends what goes out at once. `parts` must stay as they are until it has
  /// been sent. header.bytes is set here.
  void send(FrameHeader header, WriteParts parts = {});
  /// The same with a payload of its own.
  void send_copy(FrameHeader header, std::span<const std::byte> payload);

  /// Sends what goes out now. Throws LinkError.
  void flush();
  bool has_unsent() const noexcept { return !queue_.empty(); }

  /// Reads what is there and hands on whole frames. Throws LinkError, also when it was closed.
  void receive();

  std::uint64_t bytes_in() const noexcept { return bytes_in_; }
  std::uint64_t bytes_out() const noexcept { return bytes_out_; }

 private:
  struct Outgoing {
    FrameHeader header;
    WriteParts parts;
    std::vector<std::byte> owned;
    std::size_t sent = 0; ///< Of header and parts together.
  };
  std::size_t receive_into(std::span<std::byte> into);

  Fd link_;
  FrameHandler* handler_;
  std::deque<Outgoing> queue_;
  FrameHeader header_;
  std::size_t header_received_ = 0;
  ReadParts payload_;
  std::size_t part_ = 0;          ///< Of payload_, the one being filled,
  std::size_t part_received_ = 0; ///< and how far.
  std::uint64_t bytes_in_ = 0;
  std::uint64_t bytes_out_ = 0;
};

} // namespace trainer
