#include "trainer/job/handshake.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <poll.h>
#include <unistd.h>

#include "submit/errors.h"
#include "trainer/entropy.h"

namespace trainer {
namespace {

static_assert(std::endian::native == std::endian::little, "the wire is little-endian");

constexpr std::array<char, 8> k_magic = {'d', 't', 'r', 'a', 'i', 'n', '\r', '\n'};
constexpr std::uint32_t k_version = 4;
constexpr double k_handshake_seconds = 5;
constexpr std::size_t k_most_pending = 256;

using Nonce = std::array<std::uint8_t, 32>;
using Mac = std::array<std::uint8_t, 32>;

struct Challenge {
  std::array<char, 8> magic = k_magic;
  std::uint32_t version = k_version;
  std::uint32_t reserved = 0;
  Nonce nonce{};
};
static_assert(sizeof(Challenge) == 48);

struct Hello {
  std::array<char, 8> magic = k_magic;
  std::uint32_t version = k_version;
  std::uint32_t purpose = 0;
  std::int32_t rank = 0;
  std::int32_t world_size = 0;
  std::int64_t pid = 0;
  std::array<char, 64> host{};
  Nonce nonce{};
  Mac mac{};
};
static_assert(sizeof(Hello) == 160);

struct Welcome {
  std::array<char, 8> magic = k_magic;
  std::uint32_t accepted = 0;
  std::uint32_t reserved = 0;
  std::array<char, 240> reason{};
  Mac mac{};
};
static_assert(sizeof(Welcome) == 288);

template <std::size_t N>
void put_text(std::array<char, N>& field, const std::string& text) {
  field.fill('\0');
  std::copy_n(text.data(), std::min(text.size(), N - 1), field.data());
}

template <std::size_t N>
std::string get_text(const std::array<char, N>& field) {
  return dtrain::printable({field.data(), strnlen(field.data(), N)});
}

Mac sign(const std::string& token, std::string_view role,
         std::initializer_list<std::span<const std::byte>> parts) {
  std::string text(role);
  for (const auto& part : parts) {
    text.append(reinterpret_cast<const char*>(part.data()), part.size());
  }
  Mac mac{};
  unsigned length = mac.size();
  if (HMAC(EVP_sha256(), token.data(), static_cast<int>(token.size()),
           reinterpret_cast<const unsigned char*>(text.data()), text.size(), mac.data(),
           &length) == nullptr) {
    throw Error("HMAC-SHA256 is not available in this libcrypto");
  }
  return mac;
}

bool same(const Mac& a, const Mac& b) { return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0; }

Mac sign_hello(const std::string& token, const Challenge& challenge, Hello hello) {
  hello.mac.fill(0);
  return sign(token, "dialler", {bytes_of(challenge), bytes_of(hello)});
}

Mac sign_welcome(const std::string& token, const Challenge& challenge, const Hello& hello,
                 Welcome welcome) {
  welcome.mac.fill(0);
  return sign(token, "acceptor", {bytes_of(challenge), bytes_of(hello), bytes_of(welcome)});
}

constexpr const char* k_token_differs = "the job token differs";

} // namespace

std::string no_token_warning() {
  return "this job has no token, so anyone who reaches its ports can join or end it; give all its "
         "ranks the same --token-file or DTRAIN_JOB_TOKEN";
}

std::string Introduction::name() const {
  return fmt::format("rank {} ({}, pid {})", rank, host, pid);
}

Introduction introduce_self(LinkPurpose purpose, int rank, int world_size) {
  std::array<char, 64> host{};
  if (gethostname(host.data(), host.size() - 1) != 0) {
    put_text(host, "unknown host");
  }
  return {purpose, rank, world_size, getpid(), get_text(host)};
}

Fd dial_authenticated(const Address& address, const std::string& token, const Introduction& self,
                      Deadline deadline) {
  Fd fd = dial(address, deadline);
  deadline = std::min(deadline, after_seconds(k_handshake_seconds));
  Challenge challenge;
  receive_all(fd, writable_bytes_of(challenge), deadline);
  if (challenge.magic != k_magic) {
    throw LinkError("what listens there is not a rank");
  }
  if (challenge.version != k_version) {
    throw RefusedError(fmt::format(
        "{} uses version {} of the protocol, this rank {}; use one build of the trainer everywhere",
        address.text(), challenge.version, k_version));
  }
  Hello hello;
  hello.purpose = static_cast<std::uint32_t>(self.purpose);
  hello.rank = self.rank;
  hello.world_size = self.world_size;
  hello.pid = self.pid;
  put_text(hello.host, self.host);
  hello.nonce = random_value<Nonce>();
  hello.mac = sign_hello(token, challenge, hello);
  send_all(fd, bytes_of(hello), deadline);

  Welcome welcome;
  receive_all(fd, writable_bytes_of(welcome), deadline);
  if (welcome.magic != k_magic) {
    throw LinkError("what listens there is not a rank");
  }
  if (!same(welcome.mac, sign_welcome(token, challenge, hello, welcome))) {
    throw RefusedError(
        fmt::format("{} belongs to another job: {}", address.text(), k_token_differs));
  }
  if (welcome.accepted != 1) {
    throw RefusedError(get_text(welcome.reason));
  }
  return fd;
}

struct Acceptor::Pending {
  Fd link;
  std::string from;
  Deadline deadline;
  Challenge challenge;
  Hello hello;
  std::size_t received = 0;
  bool over = false;
};

Acceptor::Acceptor(Fd listener, std::string token, LinkPurpose purpose, Judge judge)
    : token_(std::move(token)), purpose_(purpose), judge_(std::move(judge)) {
  add_listener(std::move(listener));
}

Acceptor::~Acceptor() = default;
Acceptor::Acceptor(Acceptor&&) noexcept = default;

std::optional<Acceptor::Arrival> Acceptor::next(Deadline deadline) {
  for (;;) {
    std::vector<pollfd> polled = to_poll();
    const std::size_t first = listeners_.size();
    Deadline wake = deadline;
    for (const Pending& pending : pending_) {
      wake = std::min(wake, pending.deadline);
    }
    if (poll(polled.data(), polled.size(), poll_timeout(wake)) < 0 && errno != EINTR) {
      throw LinkError("poll: " + error_text(errno));
    }
    std::optional<Arrival> arrival;
    for (std::size_t i = 0; i < pending_.size() && !arrival; ++i) {
      if (polled[first + i].revents != 0) {
        arrival = advance(pending_[i]);
      } else if (Clock::now() >= pending_[i].deadline) {
        refuse(pending_[i], "it sent nothing");
      }
    }
    std::erase_if(pending_, [](const Pending& pending) { return pending.over; });
    if (arrival) {
      return arrival;
    }
    for (std::size_t i = 0; i < first; ++i) {
      if (polled[i].revents != 0) {
        accept_new(listeners_[i]);
      }
    }
    if (Clock::now() >= deadline) {
      return std::nullopt;
    }
  }
}

std::vector<pollfd> Acceptor::to_poll() const {
  std::vector<pollfd> polled;
  for (const Fd& listener : listeners_) {
    polled.push_back({listener.get(), POLLIN, 0});
  }
  for (const Pending& pending : pending_) {
    polled.push_back({pending.link.get(), POLLIN, 0});
  }
  return polled;
}

void Acceptor::accept_new(const Fd& listener) {
  while (Fd link = accept_one(listener)) {
    if (pending_.size() >= k_most_pending) {
      pending_.erase(pending_.begin());
    }
    Pending pending;
    try {
      pending.from = remote_address(link).text();
    } catch (const LinkError&) {
      continue;
    }
    pending.link = std::move(link);
    pending.deadline = after_seconds(k_handshake_seconds);
    pending.challenge.nonce = random_value<Nonce>();
    // A new connection's buffer takes these few bytes at once, or there is no other side.
    if (send(pending.link.get(), &pending.challenge, sizeof(Challenge), MSG_NOSIGNAL) ==
        static_cast<ssize_t>(sizeof(Challenge))) {
      pending_.push_back(std::move(pending));
    }
  }
}

std::optional<Acceptor::Arrival> Acceptor::advance(Pending& pending) {
  const auto rest = writable_bytes_of(pending.hello).subspan(pending.received);
  const ssize_t received = recv(pending.link.get(), rest.data(), rest.size(), 0);
  if (received < 0 && (errno == EAGAIN || errno == EINTR)) {
    return std::nullopt;
  }
  if (received <= 0) {
    refuse(pending, "it closed the connection");
    return std::nullopt;
  }
  pending.received += static_cast<std::size_t>(received);
  const std::size_t magic_bytes = std::min(pending.received, k_magic.size());
  if (!std::equal(k_magic.begin(), k_magic.begin() + static_cast<std::ptrdiff_t>(magic_bytes),
                  pending.hello.magic.begin())) {
    refuse(pending, "it is not a rank");
    return std::nullopt;
  }
  return pending.received == sizeof(Hello) ? judge_hello(pending) : std::nullopt;
}

std::optional<Acceptor::Arrival> Acceptor::judge_hello(Pending& pending) {
  const Hello& hello = pending.hello;
  if (hello.version != k_version) {
    refuse(pending,
           fmt::format("it uses version {} of the protocol, not {}", hello.version, k_version));
    return std::nullopt;
  }
  if (!same(hello.mac, sign_hello(token_, pending.challenge, hello))) {
    refuse(pending, k_token_differs);
    return std::nullopt;
  }
  const Introduction who = {static_cast<LinkPurpose>(hello.purpose), hello.rank, hello.world_size,
                            hello.pid, get_text(hello.host)};
  if (who.purpose != purpose_) {
    refuse(pending, "it connected for another purpose");
    return std::nullopt;
  }
  if (const auto refusal = judge_ ? judge_(who) : std::nullopt) {
    refuse(pending, *refusal);
    return std::nullopt;
  }
  Welcome welcome;
  welcome.accepted = 1;
  welcome.mac = sign_welcome(token_, pending.challenge, hello, welcome);
  pending.over = true;
  if (send(pending.link.get(), &welcome, sizeof welcome, MSG_NOSIGNAL) !=
      static_cast<ssize_t>(sizeof welcome)) {
    return std::nullopt;
  }
  return Arrival{who, std::move(pending.link)};
}

void Acceptor::refuse(Pending& pending, const std::string& reason) {
  ++refused_;
  last_refusal_ = fmt::format("{}: {}", pending.from, reason);
  if (pending.received == sizeof(Hello)) {
    Welcome welcome;
    put_text(welcome.reason, reason);
    welcome.mac = sign_welcome(token_, pending.challenge, pending.hello, welcome);
    (void)send(pending.link.get(), &welcome, sizeof welcome, MSG_NOSIGNAL);
  }
  pending.over = true;
}

std::string Acceptor::refusals() const {
  return refused_ == 0 ? std::string()
                       : fmt::format("{} connection{} refused, the last from {}", refused_,
                                     refused_ == 1 ? "" : "s", last_refusal_);
}

} // namespace trainer
