#include "trainer/collectives/tcp/steps.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>
#include <poll.h>
#include <sys/uio.h>

#include "submit/errors.h"
#include "trainer/collectives/reduce.h"

namespace trainer {
namespace {

/// Bytes: fits L2 together with what it is added to.
constexpr std::size_t k_segment = 128UL * 1024;
/// Received data begins near the beginning of a page in the kernel's memory. Copying it to the same
/// offset of another page, or just after it, takes some cores half as long again.
constexpr std::size_t k_half_page = 2048;
constexpr std::size_t k_longest_send = 512UL * 1024;
constexpr std::uint32_t k_header_magic = 0x54444333;

} // namespace

CollectiveHeader::CollectiveHeader(const Collective& collective, std::uint64_t number_)
    : magic(k_header_magic), kind(collective.kind), number(number_),
      bytes(collective.range.size_bytes()), root(collective.root), wire(collective.wire),
      dtype(static_cast<std::uint32_t>(collective.range.dtype())),
      pieces(static_cast<std::uint32_t>(collective.pieces)) {
  std::copy_n(collective.name.begin(), std::min(collective.name.size(), name.size() - 1),
              name.begin());
}

std::string CollectiveHeader::text() const {
  Collective shown;
  shown.kind = kind;
  shown.root = root;
  shown.wire = wire;
  shown.name = dtrain::printable({name.data(), strnlen(name.data(), name.size())});
  shown.range = {nullptr, bytes / size_of(type()), type()};
  return fmt::format("{} (collective {})", shown.text(), number);
}

struct StepRunner::Progress {
  std::size_t header_sent = 0;
  std::size_t header_received = 0;
  CollectiveHeader header;      ///< The previous rank's.
  std::size_t send_step = 0;    ///< The step being sent,
  std::size_t sent = 0;         ///< and how many of its bytes have been.
  std::size_t receive_step = 0; ///< The same for receiving:
  std::size_t received = 0;     ///< received and added, whole values only where they are added.
  std::size_t held = 0;         ///< Bytes of an incomplete value at the start of segment_.

  void skip_empty(std::span<const Step> steps) {
    while (send_step < steps.size() && sent == steps[send_step].send.size()) {
      ++send_step;
      sent = 0;
    }
    while (receive_step < steps.size() && received == steps[receive_step].receive.size()) {
      ++receive_step;
      received = 0;
    }
  }

  /// Bytes of the current step that may be sent now.
  std::size_t sendable(std::span<const Step> steps) const {
    if (send_step == steps.size()) {
      return 0;
    }
    const Step& step = steps[send_step];
    const std::size_t all = step.send.size();
    if (step.forwards == Step::k_at_once || step.forwards < receive_step) {
      return all - sent;
    }
    return step.forwards == receive_step ? std::min(all, received) - sent : 0;
  }
};

StepRunner::StepRunner(RingLinks links, Health& health)
    : links_(std::move(links)), health_(health),
      segment_memory_((k_half_page + k_segment) / sizeof(float)),
      segment_(segment_memory_.floats().subspan(k_half_page / sizeof(float))) {}

int StepRunner::rank_at(int distance) const {
  const auto n = static_cast<int>(links_.members.size());
  return links_.members[static_cast<std::size_t>((links_.position + n + distance) % n)];
}

void StepRunner::run(const CollectiveHeader& header, std::span<const Step> steps) {
  header_ = header;
  Progress at;
  while (true) {
    const bool sent = send_some(steps, at);
    const bool received = receive_some(steps, at);
    at.skip_empty(steps);
    const bool may_send = at.sendable(steps) > 0 || at.header_sent < sizeof header_;
    const bool may_receive = at.header_received < sizeof header_ || at.receive_step < steps.size();
    if (!may_send && !may_receive && at.send_step == steps.size()) {
      return;
    }
    if (!sent && !received) {
      await(may_send, may_receive);
    }
  }
}

bool StepRunner::send_some(std::span<const Step> steps, Progress& at) {
  at.skip_empty(steps);
  const std::size_t ready = std::min(at.sendable(steps), k_longest_send);
  const std::size_t header_left = sizeof header_ - at.header_sent;
  if (header_left == 0 && ready == 0) {
    return false;
  }
  std::array<iovec, 2> parts{};
  std::size_t used = 0;
  if (header_left > 0) {
    parts[used++] = {reinterpret_cast<std::byte*>(&header_) + at.header_sent, header_left};
  }
  if (ready > 0) {
    parts[used++] = {const_cast<std::byte*>(steps[at.send_step].send.data()) + at.sent, ready};
  }
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = used;
  const ssize_t sent = sendmsg(links_.next.get(), &message, MSG_NOSIGNAL);
  if (sent < 0) {
    if (errno == EAGAIN || errno == EINTR) {
      return false;
    }
    health_.fail_link(fmt::format("rank {} lost its data connection to {}: {}", rank_at(0),
                                  health_.name(rank_at(1)), error_text(errno)));
  }
  const std::size_t of_header = std::min(static_cast<std::size_t>(sent), header_left);
  at.header_sent += of_header;
  at.sent += static_cast<std::size_t>(sent) - of_header;
  return true;
}

bool StepRunner::receive_some(std::span<const Step> steps, Progress& at) {
  if (at.header_received < sizeof header_) {
    const auto rest = writable_bytes_of(at.header).subspan(at.header_received);
    const std::size_t received = receive(rest);
    at.header_received += received;
    if (at.header_received == sizeof header_) {
      compare(at.header);
    }
    return received > 0;
  }
  at.skip_empty(steps);
  if (at.receive_step == steps.size()) {
    return false;
  }
  const Step& step = steps[at.receive_step];
  if (step.action == Step::Action::add || step.action == Step::Action::add_wire) {
    return receive_into_segment(step, at) > 0;
  }
  const std::size_t before = at.received;
  at.received += receive(step.receive.subspan(before));
  if (step.action == Step::Action::widen_wire) {
    const std::size_t first = before / sizeof(std::uint16_t);
    const auto* halves = reinterpret_cast<const std::uint16_t*>(step.receive.data());
    wire_kernels(header_.wire)
        .widen(step.floats + first, halves + first, at.received / sizeof(std::uint16_t) - first);
  }
  return at.received > before;
}

/// Adds up complete values that have arrived; a part of one waits in the segment.
std::size_t StepRunner::receive_into_segment(const Step& step, Progress& at) {
  const std::span<std::byte> rest = step.receive.subspan(at.received);
  const std::span<std::byte> segment = std::as_writable_bytes(segment_);
  const std::size_t wanted = std::min(rest.size(), segment.size());
  const std::size_t received = receive(segment.subspan(at.held, wanted - at.held));
  at.held += received;
  std::size_t added = 0;
  if (step.action == Step::Action::add) {
    const DType dtype = header_.type();
    const std::size_t count = at.held / size_of(dtype);
    add_values(dtype, rest.data(), segment.data(), count);
    added = count * size_of(dtype);
  } else {
    const std::size_t count = at.held / sizeof(std::uint16_t);
    wire_kernels(header_.wire)
        .add(reinterpret_cast<std::uint16_t*>(rest.data()),
             reinterpret_cast<const std::uint16_t*>(segment.data()),
             step.floats + at.received / sizeof(std::uint16_t), count);
    added = count * sizeof(std::uint16_t);
  }
  at.received += added;
  at.held -= added;
  std::memmove(segment.data(), segment.data() + added, at.held);
  return received;
}

/// Receives at most the length of `into`; returns 0 if nothing has arrived.
std::size_t StepRunner::receive(std::span<std::byte> into) {
  const ssize_t received = recv(links_.previous.get(), into.data(), into.size(), 0);
  if (received > 0) {
    return static_cast<std::size_t>(received);
  }
  if (received < 0 && (errno == EAGAIN || errno == EINTR)) {
    return 0;
  }
  health_.fail_link(fmt::format("rank {} lost its data connection from {}: {}", rank_at(0),
                                health_.name(rank_at(-1)),
                                received == 0 ? "connection closed" : error_text(errno)));
}

void StepRunner::compare(const CollectiveHeader& theirs) {
  if (theirs == header_) {
    return;
  }
  if (theirs.magic != k_header_magic) {
    health_.fail(fmt::format("rank {} received data from {} that is not a collective", rank_at(0),
                             health_.name(rank_at(-1))));
  }
  health_.fail(fmt::format("the ranks' collectives differ: {} is at {}, {} at {}",
                           health_.name(rank_at(-1)), theirs.text(), health_.name(rank_at(0)),
                           header_.text()));
}

void StepRunner::await(bool may_send, bool may_receive) {
  // A link that is not needed is left out, -1: for a broken one poll() would return at once each
  // time, and the heartbeat's verdict would never be read.
  std::array<pollfd, 2> polled = {pollfd{may_receive ? links_.previous.get() : -1, POLLIN, 0},
                                  pollfd{may_send ? links_.next.get() : -1, POLLOUT, 0}};
  if (poll(polled.data(), polled.size(), poll_timeout(after_seconds(k_check_seconds))) <= 0) {
    health_.check();
  }
}

} // namespace trainer
