#include "trainer/job/frames.h"

#include <algorithm>

namespace trainer {
namespace {

constexpr std::uint32_t k_frame_magic = 0x54445332;
constexpr std::size_t k_frame_piece = 64 << 10;

struct Envelope {
  std::uint32_t magic = k_frame_magic;
  std::uint32_t what = 0;
  std::uint64_t size = 0;
};

} // namespace

void send_frame(const Fd& link, std::uint32_t what, std::span<const std::byte> body,
                Deadline deadline) {
  const Envelope envelope{k_frame_magic, what, body.size()};
  send_all(link, bytes_of(envelope), deadline);
  send_all(link, body, deadline);
}

Frame receive_frame(const Fd& link, std::uint64_t longest, Deadline deadline) {
  Envelope envelope;
  receive_all(link, writable_bytes_of(envelope), deadline);
  if (envelope.magic != k_frame_magic || envelope.size > longest) {
    throw LinkError("it sent something else than expected");
  }
  Frame frame{envelope.what, {}};
  while (frame.body.size() < envelope.size) {
    const std::size_t had = frame.body.size();
    frame.body.resize(std::min<std::size_t>(envelope.size, had + k_frame_piece));
    receive_all(link, std::span(frame.body).subspan(had), deadline);
  }
  return frame;
}

} // namespace trainer
