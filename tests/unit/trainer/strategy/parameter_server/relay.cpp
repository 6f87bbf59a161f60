#include "tests/unit/trainer/strategy/parameter_server/relay.h"

#include <array>

#include <poll.h>
#include <sys/socket.h>

#include "tests/unit/waiting.h"

namespace trainer::test {
namespace {

bool pass(const Fd& from, const Fd& to) {
  std::array<std::byte, 4096> bytes{};
  const ssize_t length = recv(from.get(), bytes.data(), bytes.size(), 0);
  if (length <= 0) {
    return false;
  }
  try {
    send_all(to, {bytes.data(), static_cast<std::size_t>(length)}, after_seconds(5));
    return true;
  } catch (const LinkError&) {
    return false;
  }
}

} // namespace

Relay::Relay(int port)
    : to_(port), listener_(listen_at(resolve("127.0.0.1", 0).front())),
      thread_([this](const std::stop_token& stop) { run(stop); }) {}

std::string Relay::address() const {
  return "127.0.0.1:" + std::to_string(local_address(listener_).port());
}

void Relay::set(std::atomic<bool>& flag, bool now) {
  flag = now;
  const int round = rounds_;
  unit::wait_until([&] { return rounds_ > round + 1; });
}

void Relay::run(const std::stop_token& stop) {
  Fd worker;
  Fd server;
  while (!stop.stop_requested()) {
    const short from_server = holds_server_ ? POLLRDHUP : POLLIN;
    pollfd polled[] = {{worker ? -1 : listener_.get(), POLLIN, 0},
                       {holds_worker_ || !worker ? -1 : worker.get(), POLLIN, 0},
                       {server ? server.get() : -1, from_server, 0}};
    ++rounds_;
    poll(polled, 3, 2);
    if (polled[0].revents != 0) {
      worker = Fd(accept(listener_.get(), nullptr, nullptr));
      try {
        server = dial(resolve("127.0.0.1", to_).front(), after_seconds(5));
      } catch (const LinkError&) {
        worker = Fd(); // The server is being started again; the worker tries again too.
      }
      continue;
    }
    const bool is_over = (polled[1].revents != 0 && !pass(worker, server)) ||
                         (polled[2].revents != 0 && (holds_server_ || !pass(server, worker)));
    if (is_over) {
      worker = Fd();
      server = Fd();
      holds_server_ = false;
    }
  }
}

} // namespace trainer::test
