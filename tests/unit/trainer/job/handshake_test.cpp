#include "trainer/job/handshake.h"

#include <array>
#include <cstring>

#include <doctest/doctest.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/socket.h>

#include "tests/unit/thread.h"
#include "tests/unit/trainer/temp_folder.h"
#include "tests/unit/waiting.h"
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
  Fd link;
  unit::wait_until([&] {
    link = accept_one(listener);
    return static_cast<bool>(link);
  });
  return link;
}

/// Lets in whoever comes, until it is stopped.
unit::Thread accepting(Acceptor& acceptor) {
  return unit::Thread([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      (void)acceptor.next(after_seconds(0.001));
    }
  });
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
    unit::Thread between([&] {
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
    unit::Thread door = accepting(acceptor_);
    bool let_in = true;
    try {
      (void)dial_authenticated(local_address(relay_), k_token,
                               {LinkPurpose::rendezvous, 1, 2, 4711, "host-a"}, after_seconds(20));
    } catch (const Error&) {
      let_in = false;
    }
    between.join();
    door.stop();
    return let_in;
  }

 private:
  Fd relay_ = listen_here();
  Fd listener_ = listen_here();
  Address acceptor_at_ = local_address(listener_);
  Acceptor acceptor_;
};

using Message = std::vector<std::byte>;

/// A signature by itself, with nothing of the code that is tested.
Message signature(std::string_view role, const std::vector<Message>& parts) {
  std::string text(role);
  for (const Message& part : parts) {
    text.append(reinterpret_cast<const char*>(part.data()), part.size());
  }
  Message mac(32);
  unsigned length = 0;
  HMAC(EVP_sha256(), k_token, static_cast<int>(std::strlen(k_token)),
       reinterpret_cast<const unsigned char*>(text.data()), text.size(),
       reinterpret_cast<unsigned char*>(mac.data()), &length);
  return mac;
}

/// What a dialler that is written anew from the protocol's description says, and is told.
struct RawDialler {
  std::uint32_t version = 4;
  std::uint32_t purpose = 1; ///< Rendezvous.
  std::string_view role = "dialler";

  struct Answer {
    bool is_let_in = false;
    bool is_signed = false;
    std::string reason;
  };

  Answer dial_in(const std::optional<std::string>& verdict = std::nullopt) const {
    Fd listener = listen_here();
    const Address address = local_address(listener);
    Acceptor acceptor(std::move(listener), k_token, LinkPurpose::rendezvous,
                      [&](const Introduction&) { return verdict; });
    unit::Thread door = accepting(acceptor);
    const Answer answer = talk(address);
    door.stop();
    return answer;
  }

 private:
  Answer talk(const Address& address) const {
    const Fd link = dial(address, after_seconds(20));
    Message challenge(k_challenge);
    receive_all(link, challenge, after_seconds(20));
    Message hello(k_hello);
    const auto put = [&](std::size_t at, const auto& value) {
      std::memcpy(hello.data() + at, &value, sizeof value);
    };
    std::memcpy(hello.data(), challenge.data(), 8); // The magic bytes.
    put(8, version);
    put(12, purpose);
    put(16, std::int32_t{1});
    put(20, std::int32_t{2});
    put(24, std::int64_t{4711});
    const Message mac = signature(role, {challenge, hello});
    std::copy(mac.begin(), mac.end(), hello.end() - 32);
    send_all(link, hello, after_seconds(20));
    Message welcome(k_welcome);
    receive_all(link, welcome, after_seconds(20));
    const Message given(welcome.end() - 32, welcome.end());
    std::fill(welcome.end() - 32, welcome.end(), std::byte{0});
    Answer answer;
    answer.is_let_in = welcome[8] == std::byte{1};
    answer.is_signed = given == signature("acceptor", {challenge, hello, welcome});
    answer.reason = reinterpret_cast<const char*>(welcome.data()) + 16;
    return answer;
  }
};

} // namespace

TEST_CASE("the handshake is that of its description, byte for byte") {
  const auto answer = RawDialler{}.dial_in();
  CHECK(answer.is_let_in);
  CHECK(answer.is_signed);
  CHECK(answer.reason == "");
}

TEST_CASE("who holds the token but speaks otherwise is refused, and signed for") {
  const auto refused = [](const RawDialler& dialler, const char* reason) {
    const auto answer = dialler.dial_in();
    CHECK(!answer.is_let_in);
    CHECK(answer.is_signed);
    CHECK(contains(answer.reason, reason));
  };
  refused({.version = 3}, "it uses version 3 of the protocol, not 4");
  refused({.version = 5}, "it uses version 5 of the protocol, not 4");
  refused({.purpose = 2}, "it connected for another purpose");
  refused({.role = "acceptor"}, "the job token differs"); // Its own words, sent back to it.
}

TEST_CASE("of more silent connections than 256 the oldest is hung up on, not the newest") {
  Fd listener = listen_here();
  const Address address = local_address(listener);
  Acceptor acceptor(std::move(listener), k_token, LinkPurpose::rendezvous,
                    [](const Introduction&) { return std::nullopt; });
  std::vector<Fd> silent;
  for (int i = 0; i < 257; ++i) {
    silent.push_back(dial(address, after_seconds(20)));
    (void)acceptor.next(after_seconds(0));
  }
  Message challenge(k_challenge);
  for (const Fd* link : {&silent.front(), &silent.back()}) {
    receive_all(*link, challenge, after_seconds(20));
  }
  std::byte more{};
  CHECK(recv(silent.back().get(), &more, 1, MSG_DONTWAIT) == -1);
  CHECK_THROWS_AS(receive_all(silent.front(), {&more, 1}, after_seconds(2)), LinkError);
}

TEST_CASE("a dialler that is judged and refused is told why, and does not go on") {
  CHECK(RawDialler{}.dial_in("the job is full").reason == "the job is full");
  Fd listener = listen_here();
  const Address address = local_address(listener);
  Acceptor acceptor(std::move(listener), k_token, LinkPurpose::rendezvous,
                    [](const Introduction&) { return std::optional<std::string>("it is full"); });
  unit::Thread door = accepting(acceptor);
  CHECK(message_of<RefusedError>([&] {
          (void)dial_authenticated(
              address, k_token, {LinkPurpose::rendezvous, 1, 2, 4711, "host-a"}, after_seconds(20));
        }) == "it is full");
  door.stop();
}

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
  unit::Thread dialling([&] {
    (void)dial_authenticated(address, k_token,
                             {LinkPurpose::rendezvous, 1, 2, 4711, "a\x1b[2J\r\xc2\x9b"},
                             after_seconds(20));
  });
  const auto arrival = acceptor.next(after_seconds(20));
  dialling.join();
  REQUIRE(arrival);
  CHECK(arrival->who.host == "a\\x1b[2J\\x0d\\xc2\\x9b");
}
