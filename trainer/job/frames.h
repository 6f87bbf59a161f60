// What two processes say to each other over a connection: a frame is a header of 16 bytes that says
// what it is and how long its body, and that body. Here each speaks in its turn and waits for the
// other; on a poll loop that is channel.h's.
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
  std::uint64_t size = 0; ///< Of the body.
};

struct Frame {
  std::uint32_t what = 0;
  std::vector<std::byte> body;
};

void send_frame(const Fd& link, std::uint32_t what, std::span<const std::byte> body,
                Deadline deadline);

/// Throws LinkError, also for what is no frame, or one longer than `longest`. Memory is taken as
/// bytes come, not as they are announced.
Frame receive_frame(const Fd& link, std::uint64_t longest, Deadline deadline);

} // namespace trainer
