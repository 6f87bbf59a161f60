// Memory that ranks of one host share: an anonymous file (memfd), which has no name in any file
// system, so nothing is left behind however the ranks end.
//
// One rank creates it; the others open it through /proc/PID/fd, which the kernel allows the same
// user, and prove by a nonce inside that it is the one. Where they cannot (another host, another
// container) they do not share memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "trainer/job/socket.h"

namespace trainer {

class SharedFile {
 public:
  using Nonce = std::array<std::uint8_t, 32>;

  /// The data with which another rank opens it.
  struct Ticket {
    std::int64_t pid = 0;
    std::int32_t fd = -1; ///< -1: there is none.
    Nonce nonce{};
  };

  SharedFile() = default;
  /// Throws Error with the system's reason.
  static SharedFile create();
  /// Empty where it cannot be opened or is not the one of the ticket.
  static SharedFile open(const Ticket& ticket);

  explicit operator bool() const noexcept { return static_cast<bool>(fd_); }
  Ticket ticket() const;

  /// Lengthens the file and reserves its memory. Only its creator calls this; throws Error.
  void grow(std::size_t size) const;

  class Mapping {
   public:
    Mapping() = default;
    Mapping(void* at, std::size_t size) : bytes_(static_cast<std::byte*>(at), size) {}
    ~Mapping();
    Mapping(Mapping&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
    Mapping& operator=(Mapping&& other) noexcept {
      std::swap(bytes_, other.bytes_);
      return *this;
    }
    std::byte* data() const noexcept { return bytes_.data(); }
    std::size_t size() const noexcept { return bytes_.size(); }

   private:
    std::span<std::byte> bytes_;
  };
  /// Throws Error.
  Mapping map(std::size_t offset, std::size_t size) const;

 private:
  Fd fd_;
  Nonce nonce_{};
};

/// The file begins with a page that is the nonce's.
inline constexpr std::size_t k_shared_page = 4096;

} // namespace trainer
