// Messages between two processes over a connection: a frame is a header of 16 bytes with type and
// length, and a body. The functions here block; channel.h serves poll loops.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "trainer/job/socket.h"

namespace trainer {

struct FrameHeader {
  static constexpr std::uint32_t k_magic = 0x54445332;
  std::uint32_t magic = k_magic;
  std::uint32_t what = 0;
  std::uint64_t size = 0; ///< Bytes of the body.
};

struct Frame {
  std::uint32_t what = 0;
  std::vector<std::byte> body;
};

void send_frame(const Fd& link, std::uint32_t what, std::span<const std::byte> body,
                Deadline deadline);

/// Throws LinkError, also for a malformed frame, or one longer than `longest`. Memory grows with
/// the bytes that arrive, not with the announced length.
Frame receive_frame(const Fd& link, std::uint64_t longest, Deadline deadline);

} // namespace trainer
