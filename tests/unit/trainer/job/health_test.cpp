#include "trainer/job/health.h"

#include <array>
#include <chrono>
#include <thread>

#include <doctest/doctest.h>
#include <sys/socket.h>

#include "trainer/job/socket.h"

namespace trainer {
namespace {

/// A connection's two ends.
std::array<Fd, 2> connection() {
  const Fd listener = listen_at(resolve("127.0.0.1", 0).front());
  Fd dialled = dial(local_address(listener), after_seconds(20));
  for (;;) {
    if (Fd accepted = accept_one(listener)) {
      return {std::move(dialled), std::move(accepted)};
    }
  }
}

/// The ranks that are known to have closed their connection, as rank 0 loses one to rank 1.
std::set<int> closed_after(bool with_reset) {
  auto [own, peers] = connection();
  JobOptions options;
  options.contact = std::make_shared<LastContact>(Clock::now());
  std::vector<Fd> links(2);
  links[1] = std::move(own);
  std::vector<Introduction> who(2);
  who[1].rank = 1;
  Health health(0, who, std::move(links), options);
  std::array<std::byte, 16> beat{};
  receive_all(peers, beat, after_seconds(20));
  if (with_reset) {
    const linger reset{1, 0};
    setsockopt(peers.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
  } else {
    shutdown(peers.get(), SHUT_WR);
    while (!is_closed(peers)) { // Unread bytes would make it a reset.
      std::array<std::byte, 4096> rest{};
      (void)recv(peers.get(), rest.data(), rest.size(), 0);
    }
  }
  peers.reset();
  for (int i = 0; i < 20'000; ++i) {
    try {
      health.check();
    } catch (const PeerError&) {
      return options.contact->take_closed();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  FAIL("the loss was not seen");
  return {};
}

TEST_CASE("a connection that its peer's machine closed is told from one that was reset") {
  CHECK(closed_after(false) == std::set<int>{1});
  CHECK(closed_after(true).empty());
}

TEST_CASE("an address is this machine's where packets to it stay here") {
  CHECK(is_of_this_machine(resolve("127.0.0.1", 4711).front()));
  CHECK(!is_of_this_machine(resolve("192.0.2.1", 4711).front())); // For documents only.
}

TEST_CASE("localhost is this machine, also where no file of hosts says so") {
  CHECK(is_of_this_machine(resolve("ranks-of-a-test.localhost", 4711).front()));
}

} // namespace
} // namespace trainer
