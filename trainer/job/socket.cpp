#include "trainer/job/socket.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <memory>
#include <system_error>
#include <thread>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <unistd.h>

namespace trainer {
namespace {

constexpr int k_backlog = 512;

sockaddr* raw(Address& address) { return reinterpret_cast<sockaddr*>(&address.storage); }
const sockaddr* raw(const Address& address) {
  return reinterpret_cast<const sockaddr*>(&address.storage);
}

void set_option(const Fd& fd, int level, int name, int value) {
  // Options only tune; where a kernel lacks one, the link still works.
  (void)setsockopt(fd.get(), level, name, &value, sizeof value);
}

Fd open_socket(const Address& address) {
  Fd fd(socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) {
    throw LinkError(fmt::format("socket: {}", error_text(errno)));
  }
  // Else a frame's body waits 40 ms for its envelope's acknowledgement. What is accepted inherits
  // it.
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  return fd;
}

/// Returns when the socket is ready for `events`; throws at the deadline.
void await(const Fd& fd, short events, Deadline deadline) {
  for (;;) {
    pollfd waited{fd.get(), events, 0};
    const int ready = poll(&waited, 1, poll_timeout(deadline));
    if (ready > 0) {
      return;
    }
    if (ready == 0 && Clock::now() >= deadline) {
      throw LinkError("no answer in time");
    }
    if (ready < 0 && errno != EINTR) {
      throw LinkError(fmt::format("poll: {}", error_text(errno)));
    }
  }
}

bool would_block(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

} // namespace

Deadline after_seconds(double seconds) {
  return Clock::now() +
         std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

double seconds_until(Deadline deadline) {
  return std::chrono::duration<double>(deadline - Clock::now()).count();
}

int poll_timeout(Deadline deadline) {
  constexpr double k_longest = 1e6;
  return static_cast<int>(std::ceil(std::clamp(seconds_until(deadline) * 1e3, 0.0, k_longest)));
}

std::string error_text(int error) { return std::generic_category().message(error); }

void Fd::reset() noexcept {
  if (fd_ >= 0) {
    close(std::exchange(fd_, -1));
  }
}

int Address::port() const {
  if (storage.ss_family == AF_INET6) {
    return ntohs(reinterpret_cast<const sockaddr_in6&>(storage).sin6_port);
  }
  return ntohs(reinterpret_cast<const sockaddr_in&>(storage).sin_port);
}

void Address::set_port(int port) {
  if (storage.ss_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6&>(storage).sin6_port = htons(static_cast<uint16_t>(port));
  } else {
    reinterpret_cast<sockaddr_in&>(storage).sin_port = htons(static_cast<uint16_t>(port));
  }
}

bool Address::is_loopback() const {
  if (storage.ss_family == AF_INET6) {
    return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(storage).sin6_addr) != 0;
  }
  constexpr unsigned k_loopback_net = 127;
  return ntohl(reinterpret_cast<const sockaddr_in&>(storage).sin_addr.s_addr) >> 24 ==
         k_loopback_net;
}

std::string Address::text() const {
  char host[INET6_ADDRSTRLEN] = "?";
  if (storage.ss_family == AF_INET6) {
    inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6&>(storage).sin6_addr, host,
              sizeof host);
    return fmt::format("[{}]:{}", host, port());
  }
  inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in&>(storage).sin_addr, host, sizeof host);
  return fmt::format("{}:{}", host, port());
}

namespace {

/// This machine by definition (RFC 6761), whether or not /etc/hosts has a line for it.
bool is_loopback_name(std::string_view host) {
  return host == "localhost" || host.ends_with(".localhost");
}

} // namespace

std::vector<Address> resolve(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  int failed = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (failed != 0 && is_loopback_name(host)) {
    failed = getaddrinfo("127.0.0.1", std::to_string(port).c_str(), &hints, &found);
  }
  if (failed != 0) {
    throw ClusterError(
        fmt::format("MASTER_ADDR '{}' has no address: {}", host, gai_strerror(failed)));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
  std::vector<Address> addresses;
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    if (at->ai_addrlen <= sizeof(sockaddr_storage)) {
      Address address;
      std::copy_n(reinterpret_cast<const char*>(at->ai_addr), at->ai_addrlen,
                  reinterpret_cast<char*>(&address.storage));
      address.length = at->ai_addrlen;
      addresses.push_back(address);
    }
  }
  return addresses;
}

std::vector<Address> resolve(const std::string& host, int port, Deadline deadline) {
  constexpr std::chrono::milliseconds k_pause(200);
  while (Clock::now() + k_pause < deadline) {
    try {
      return resolve(host, port);
    } catch (const ClusterError&) {
      std::this_thread::sleep_for(k_pause);
    }
  }
  return resolve(host, port);
}

Address any_address(int family, int port) {
  Address address;
  address.storage.ss_family = static_cast<sa_family_t>(family);
  address.length = family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  address.set_port(port);
  return address;
}

Address local_address(const Fd& fd) {
  Address address;
  address.length = sizeof address.storage;
  if (getsockname(fd.get(), raw(address), &address.length) != 0) {
    throw LinkError(fmt::format("getsockname: {}", error_text(errno)));
  }
  return address;
}

Address remote_address(const Fd& fd) {
  Address address;
  address.length = sizeof address.storage;
  if (getpeername(fd.get(), raw(address), &address.length) != 0) {
    throw LinkError(fmt::format("getpeername: {}", error_text(errno)));
  }
  return address;
}

bool is_of_this_machine(Address address) {
  address.set_port(0);
  const Fd fd = open_socket(address);
  return bind(fd.get(), raw(address), address.length) == 0;
}

Fd listen_at(const Address& address) {
  Fd fd = open_socket(address);
  set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);
  if (bind(fd.get(), raw(address), address.length) != 0 || listen(fd.get(), k_backlog) != 0) {
    throw LinkError(error_text(errno));
  }
  return fd;
}

Fd accept_one(const Fd& listener) noexcept {
  return Fd(accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
}

Fd dial(const Address& address, Deadline deadline) {
  const auto fail = [](int error) {
    if (error == ECONNREFUSED) {
      throw NobodyListensError(error_text(error));
    }
    throw LinkError(error_text(error));
  };
  Fd fd = open_socket(address);
  if (connect(fd.get(), raw(address), address.length) != 0) {
    if (errno != EINPROGRESS) {
      fail(errno);
    }
    await(fd, POLLOUT, deadline);
    int error = 0;
    socklen_t length = sizeof error;
    getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &length);
    if (error != 0) {
      fail(error);
    }
  }
  return fd;
}

void send_all(const Fd& fd, std::span<const std::byte> bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const ssize_t sent = send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent > 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(sent));
    } else if (would_block(errno)) {
      await(fd, POLLOUT, deadline);
    } else {
      throw LinkError(error_text(errno));
    }
  }
}

void receive_all(const Fd& fd, std::span<std::byte> bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const ssize_t received = recv(fd.get(), bytes.data(), bytes.size(), 0);
    if (received > 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(received));
    } else if (received == 0) {
      throw LinkError("connection closed");
    } else if (would_block(errno)) {
      await(fd, POLLIN, deadline);
    } else {
      throw LinkError(error_text(errno));
    }
  }
}

bool is_closed(const Fd& fd) noexcept {
  char peeked = 0;
  const ssize_t received = recv(fd.get(), &peeked, 1, MSG_PEEK | MSG_DONTWAIT);
  return received == 0 || (received < 0 && !would_block(errno));
}

bool is_within_host(const Fd& fd) {
  Address here = local_address(fd);
  const Address there = remote_address(fd);
  here.set_port(there.port());
  return here.text() == there.text();
}

void limit_unread(const Fd& fd, int bytes) { set_option(fd, SOL_SOCKET, SO_SNDBUF, bytes); }

void tune_link(const Fd& fd, double timeout) {
  constexpr int k_probes = 3;
  const int probe_seconds = std::max(1, static_cast<int>(timeout / (k_probes + 1)));
  set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(timeout * 1e3));
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, probe_seconds);
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, probe_seconds);
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, k_probes);
}

} // namespace trainer
