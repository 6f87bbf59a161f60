#include "trainer/job/handshake.h"

#include <array>
#include <atomic>
#include <thread>

#include <doctest/doctest.h>

#include "trainer/job/socket.h"

using namespace trainer;

namespace {

constexpr const char* k_token = "a token for tests";
constexpr std::size_t k_challenge = 48; ///< Bytes of each message, as handshake.h lays them out.
constexpr std::size_t k_hello = 160;
constexpr std::size_t k_welcome = 288;
constexpr std::size_t k_all = k_challenge + k_hello + k_welcome;

Fd listen_here() { return listen_at(resolve("127.0.0.1", 0).front()); }

Fd accept_soon(const Fd& listener) {
  for (;;) {
    if (Fd link = accept_one(listener)) {
      return link;
    }
    std::this_thread::yield();
  }
}

/// Passes on `size` bytes, of which the one at `flipped` changes one bit.
void pass_on(const Fd& from, const Fd& to, std::size_t size, std::size_t flipped) {
  std::array<std::byte, k_all> bytes{};
  const auto message = std::span(bytes).first(size);
  receive_all(from, message, after_seconds(20));
  if (flipped < size) {
    message[flipped] ^= std::byte{0x10};
  }
  send_all(to, message, after_seconds(20));
}

/// A rank that lets others in, and somebody between them and it.
class Tampering {
 public:
  Tampering()
      : acceptor_(std::move(listener_), k_token, LinkPurpose::rendezvous,
                  [](const Introduction&) { return std::nullopt; }) {}

  /// Whether the dialler takes the acceptor for one of its job, where byte `flipped` of all that is
  /// said is changed on its way.
  bool is_let_in(std::size_t flipped) {
    std::atomic<bool> is_over = false;
    std::thread between([&] {
      const Fd dialler = accept_soon(relay_);
      const Fd acceptor = dial(acceptor_at_, after_seconds(20));
      try {
        pass_on(acceptor, dialler, k_challenge, flipped);
        pass_on(dialler, acceptor, k_hello, flipped - k_challenge);
        pass_on(acceptor, dialler, k_welcome, flipped - k_challenge - k_hello);
      } catch (const LinkError&) {
        return; // One of them has hung up.
      }
    });
    std::thread accepting([&] {
      while (!is_over) {
        (void)acceptor_.next(after_seconds(0.005));
      }
    });
    bool let_in = true;
    try {
      (void)dial_authenticated(local_address(relay_), k_token,
                               {LinkPurpose::rendezvous, 1, 2, 4711, "host-a"}, after_seconds(20));
    } catch (const Error&) {
      let_in = false;
    }
    between.join();
    is_over = true;
    accepting.join();
    return let_in;
  }

 private:
  Fd relay_ = listen_here();
  Fd listener_ = listen_here();
  Address acceptor_at_ = local_address(listener_);
  Acceptor acceptor_;
};

} // namespace

TEST_CASE("a changed byte anywhere in the handshake keeps the two apart") {
  Tampering between;
  CHECK(between.is_let_in(k_all)); // As it was sent.
  for (std::size_t flipped = 0; flipped < k_all; ++flipped) {
    CAPTURE(flipped);
    CHECK(!between.is_let_in(flipped));
  }
}

TEST_CASE("a host name that could rule a terminal is shown as what it is made of") {
  Fd listener = listen_here();
  const Address address = local_address(listener);
  Acceptor acceptor(std::move(listener), k_token, LinkPurpose::rendezvous,
                    [](const Introduction&) { return std::nullopt; });
  std::thread dialling([&] {
    (void)dial_authenticated(address, k_token,
                             {LinkPurpose::rendezvous, 1, 2, 4711, "a\x1b[2J\r\xc2\x9b"},
                             after_seconds(20));
  });
  const auto arrival = acceptor.next(after_seconds(20));
  dialling.join();
  REQUIRE(arrival);
  CHECK(arrival->who.host == "a\\x1b[2J\\x0d\\xc2\\x9b");
}
