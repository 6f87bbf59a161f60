#include "backends/kubernetes/connect/port_forward.h"

#include "backends/support/os/files.h"
#include "backends/support/os/signal_fd.h"
#include "submit/errors.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <list>
#include <utility>
#include <vector>

namespace dtrain::kubernetes {
namespace {

constexpr const char* k_protocol = "v4.channel.k8s.io";
constexpr char k_data = 0;
constexpr char k_error = 1;
constexpr std::size_t k_forward_block = 32U << 10;
constexpr std::size_t k_most_waiting = 1U << 20; // Bytes, each way: then the reader has its turn.
constexpr int k_backlog = 64;

Fd listen_on(int port, int& bound) {
  Fd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int yes = 1;
  setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  socklen_t size = sizeof address;
  if (!listener || bind(listener.get(), generic, size) != 0 ||
      listen(listener.get(), k_backlog) != 0 || getsockname(listener.get(), generic, &size) != 0) {
    throw EngineError(fmt::format("cannot listen on port {} of 127.0.0.1: {}", port, errno_text()));
  }
  bound = ntohs(address.sin_port);
  return listener;
}

/// A connection of a local program, and its stream to the Pod.
class Connection {
 public:
  Connection(Fd client, std::unique_ptr<WebSocket> socket)
      : client_(std::move(client)), socket_(std::move(socket)) {}

  pollfd client_entry() const {
    const bool reads = socket_->unsent() < k_most_waiting;
    return {client_.get(),
            static_cast<short>((reads ? POLLIN : 0) | (waiting_.empty() ? 0 : POLLOUT)), 0};
  }

  pollfd socket_entry() const {
    return {waiting_.size() < k_most_waiting ? socket_->fd() : -1, socket_->events(), 0};
  }

  bool has_more() const { return socket_->has_more() && waiting_.size() < k_most_waiting; }

  /// False once it has ended. Throws EngineError where it broke, or the Pod refused it.
  bool move(bool client_ready) {
    if (waiting_.size() < k_most_waiting) {
      socket_->pump();
      while (const std::optional<std::string> message = socket_->next()) {
        take(*message);
      }
    }
    if (client_ready && !read_client()) {
      return false;
    }
    if (!write_client()) {
      return false;
    }
    socket_->pump();
    return !(socket_->ended() && waiting_.empty());
  }

 private:
  void take(std::string_view message) {
    if (message.empty() || (message[0] != k_data && message[0] != k_error)) {
      return;
    }
    if (!std::exchange(begun_.at(static_cast<std::size_t>(message[0])), true)) {
      return; // The port.
    }
    const std::string_view bytes = message.substr(1);
    if (message[0] == k_error && !bytes.empty()) {
      throw EngineError(printable(bytes));
    }
    waiting_ += bytes;
  }

  bool read_client() {
    std::array<char, k_forward_block> block; // NOLINT(*-member-init): only what was read is used
    block[0] = k_data;
    const ssize_t count = recv(client_.get(), &block[1], block.size() - 1, MSG_DONTWAIT);
    if (count > 0) {
      socket_->send({block.data(), static_cast<std::size_t>(count) + 1});
    }
    return count > 0 || (count < 0 && (errno == EAGAIN || errno == EINTR));
  }

  bool write_client() {
    if (waiting_.empty()) {
      return true;
    }
    const ssize_t count =
        ::send(client_.get(), waiting_.data(), waiting_.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count > 0) {
      waiting_.erase(0, static_cast<std::size_t>(count));
    }
    return count > 0 || errno == EAGAIN || errno == EINTR;
  }

  Fd client_;
  std::unique_ptr<WebSocket> socket_;
  std::string waiting_;         // For the client.
  std::array<bool, 2> begun_{}; // For each channel: its first message has arrived.
};

class Forwarder {
 public:
  Forwarder(ApiClient& api, Fd listener, const Forwarding& forwarding)
      : api_(api), listener_(std::move(listener)), forwarding_(forwarding) {}

  int run(const SignalFd& signals) {
    int signal = 0;
    while ((signal = signals.take()) == 0) {
      std::vector<pollfd> entries = {{signals.fd(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
      bool more = false;
      for (const Connection& connection : connections_) {
        entries.push_back(connection.client_entry());
        entries.push_back(connection.socket_entry());
        more = more || connection.has_more();
      }
      const auto longest = std::chrono::milliseconds(WebSocket::k_ping_interval);
      poll(entries.data(), entries.size(), more ? 0 : static_cast<int>(longest.count()));
      move_all(entries);
      if (entries[1].revents != 0) {
        accept_one();
      }
    }
    return signal;
  }

 private:
  void move_all(const std::vector<pollfd>& entries) {
    std::size_t at = 2;
    for (auto it = connections_.begin(); it != connections_.end(); at += 2) {
      const bool readable = (entries[at].revents & ~POLLOUT) != 0;
      bool lives = false;
      try {
        lives = it->move(readable);
      } catch (const EngineError& error) {
        forwarding_.warned(error.what());
      }
      it = lives ? std::next(it) : connections_.erase(it);
    }
  }

  void accept_one() {
    Fd client(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!client) {
      return;
    }
    try {
      const PodPort target = forwarding_.target();
      connections_.emplace_back(
          std::move(client),
          api_.open_socket(fmt::format("/api/v1/namespaces/{}/pods/{}/portforward",
                                       escape_url(target.namespace_name), escape_url(target.pod)),
                           {{"ports", std::to_string(target.port)}}, {k_protocol}));
    } catch (const Error& error) { // The next may have more luck.
      forwarding_.warned(error.what());
    }
  }

  ApiClient& api_;
  Fd listener_;
  const Forwarding& forwarding_;
  std::list<Connection> connections_;
};

} // namespace

int forward_port(ApiClient& api, int port, const Forwarding& forwarding) {
  const SignalFd signals{SIGINT, SIGTERM};
  int bound = 0;
  Fd listener = listen_on(port, bound);
  forwarding.opened(bound);
  return Forwarder(api, std::move(listener), forwarding).run(signals);
}

} // namespace dtrain::kubernetes
