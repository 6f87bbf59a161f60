#include "trainer/job/frames.h"

#include <algorithm>

namespace trainer {
namespace {

constexpr std::size_t k_frame_piece = 64 << 10;

} // namespace

void send_frame(const Fd& link, std::uint32_t what, std::span<const std::byte> body,
                Deadline deadline) {
  const FrameHeader header{FrameHeader::k_magic, what, body.size()};
  send_all(link, bytes_of(header), deadline);
  send_all(link, body, deadline);
}

Frame receive_frame(const Fd& link, std::uint64_t longest, Deadline deadline) {
  FrameHeader header;
  receive_all(link, writable_bytes_of(header), deadline);
  if (header.magic != FrameHeader::k_magic || header.size > longest) {
    throw LinkError("it sent an unexpected message");
  }
  Frame frame{header.what, {}};
  while (frame.body.size() < header.size) {
    const std::size_t had = frame.body.size();
    frame.body.resize(std::min<std::size_t>(header.size, had + k_frame_piece));
    receive_all(link, std::span(frame.body).subspan(had), deadline);
  }
  return frame;
}

} // namespace trainer
