// Stream sockets with deadlines: every call returns by its deadline or throws LinkError.
// All descriptors are non-blocking and close-on-exec; a write to a closed peer raises no signal.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <sys/socket.h>

#include "trainer/errors.h"

namespace trainer {

using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;

Deadline after_seconds(double seconds);
double seconds_until(Deadline deadline);
/// For poll(): whole milliseconds, rounded up, 0 when it has passed.
int poll_timeout(Deadline deadline);

/// A connection broke, or the other side did not answer in time. What callers of connect() and
/// the collectives see is PeerError, which names the rank.
struct LinkError : Error {
  using Error::Error;
};

/// The address's machine refused the connection: no process listens there.
struct NobodyListensError : LinkError {
  using LinkError::LinkError;
};

/// Owns a file descriptor.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  ~Fd() { reset(); }
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;

  int get() const noexcept { return fd_; }
  explicit operator bool() const noexcept { return fd_ >= 0; }
  void reset() noexcept;

 private:
  int fd_ = -1;
};

/// An IPv4 or IPv6 address with its port.
struct Address {
  sockaddr_storage storage{};
  socklen_t length = 0;

  int port() const;
  void set_port(int port);
  bool is_loopback() const;
  std::string text() const; ///< "127.0.0.1:4000", "[::1]:4000"
};

/// Throws ClusterError when the name has no address.
std::vector<Address> resolve(const std::string& host, int port);
/// The same, but tries again until the deadline: a service's name may appear after its ranks.
std::vector<Address> resolve(const std::string& host, int port, Deadline deadline);
Address any_address(int family, int port);
Address local_address(const Fd& fd);
Address remote_address(const Fd& fd);

/// Whether packets to it stay on this machine.
bool is_of_this_machine(Address address);

/// Binds with SO_REUSEADDR and listens. Throws LinkError.
Fd listen_at(const Address& address);
/// The next connection, or none now; never throws: a failed connection is skipped.
Fd accept_one(const Fd& listener) noexcept;
/// Throws LinkError with the system's reason; NobodyListensError.
Fd dial(const Address& address, Deadline deadline);

void send_all(const Fd& fd, std::span<const std::byte> bytes, Deadline deadline);
void receive_all(const Fd& fd, std::span<std::byte> bytes, Deadline deadline);

/// Whether the other side has closed it, as far as this side knows.
bool is_closed(const Fd& fd) noexcept;

/// Whether both ends have the same address.
bool is_within_host(const Fd& fd);
/// At most so many bytes are under way: sent, and not yet received.
void limit_unread(const Fd& fd, int bytes);

/// An error when sent bytes stay unacknowledged or an idle peer's host stops answering for
/// `timeout` seconds.
void tune_link(const Fd& fd, double timeout);

std::string error_text(int error);

template <typename T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span<const T, 1>(&value, 1));
}
template <typename T>
std::span<std::byte> writable_bytes_of(T& value) {
  return std::as_writable_bytes(std::span<T, 1>(&value, 1));
}

} // namespace trainer
