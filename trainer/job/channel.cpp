#include "trainer/job/channel.h"

#include <array>
#include <cerrno>

#include <fmt/format.h>
#include <sys/uio.h>

namespace trainer {
namespace {

constexpr std::size_t k_most_parts = 16; ///< Most buffers of one system call.

bool try_again(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

} // namespace

void Channel::queue(FrameHeader header, std::span<const std::byte> copied, WriteParts parts) {
  header.size = copied.size();
  for (const auto& part : parts) {
    header.size += part.size();
  }
  queue_.push_back({header, {copied.begin(), copied.end()}, std::move(parts), 0});
  flush();
}

void Channel::flush() {
  while (!queue_.empty()) {
    Outgoing& out = queue_.front();
    std::array<iovec, k_most_parts> pieces{};
    std::size_t used = 0;
    std::size_t skip = out.sent;
    const auto add = [&](std::span<const std::byte> bytes) {
      if (skip >= bytes.size()) {
        skip -= bytes.size();
      } else if (used < pieces.size()) {
        pieces[used++] = {const_cast<std::byte*>(bytes.data()) + skip, bytes.size() - skip};
        skip = 0;
      }
    };
    add(bytes_of(out.header));
    add(out.copied);
    for (const auto& part : out.parts) {
      add(part);
    }
    if (used == 0) {
      queue_.pop_front();
      continue;
    }
    msghdr message{};
    message.msg_iov = pieces.data();
    message.msg_iovlen = used;
    const ssize_t sent = sendmsg(link_.get(), &message, MSG_NOSIGNAL);
    if (sent < 0) {
      if (try_again(errno)) {
        return;
      }
      throw LinkError(error_text(errno));
    }
    out.sent += static_cast<std::size_t>(sent);
  }
}

void Channel::receive() {
  for (;;) {
    if (header_received_ < sizeof header_) {
      const std::size_t received =
          receive_into(writable_bytes_of(header_).subspan(header_received_));
      if (received == 0) {
        return;
      }
      header_received_ += received;
      if (header_received_ < sizeof header_) {
        continue;
      }
      if (header_.magic != FrameHeader::k_magic) {
        throw LinkError("it sent data that is not a message of this protocol");
      }
      body_ = handler_->body_of(header_);
      std::size_t room = 0;
      for (const auto& part : body_) {
        room += part.size();
      }
      if (room != header_.size) {
        throw LinkError("it sent a message of unexpected length");
      }
      part_ = 0;
      part_received_ = 0;
    }
    while (part_ < body_.size()) {
      const auto rest = body_[part_].subspan(part_received_);
      if (!rest.empty()) {
        const std::size_t received = receive_into(rest);
        if (received == 0) {
          return;
        }
        part_received_ += received;
      }
      if (part_received_ == body_[part_].size()) {
        ++part_;
        part_received_ = 0;
      }
    }
    header_received_ = 0;
    handler_->handle(FrameHeader(header_));
  }
}

void Channel::advance(short ready, double timeout) {
  if (ready != 0) {
    flush();
    receive();
    heard_ = Clock::now();
  } else if (const double silent = -seconds_until(heard_); silent > timeout) {
    throw LinkError(fmt::format("silent for {:.0f} s", silent));
  }
}

std::size_t Channel::receive_into(std::span<std::byte> into) {
  const ssize_t received = recv(link_.get(), into.data(), into.size(), 0);
  if (received > 0) {
    return static_cast<std::size_t>(received);
  }
  if (received == 0) {
    throw LinkError("its connection closed");
  }
  if (try_again(errno)) {
    return 0;
  }
  throw LinkError(error_text(errno));
}

} // namespace trainer
