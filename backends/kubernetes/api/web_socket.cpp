#include "backends/kubernetes/api/web_socket.h"

#include "backends/support/os/random.h"
#include "submit/errors.h"
#include "submit/text/base64.h"
#include "submit/text/lower_case.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <utility>

namespace dtrain::kubernetes {
namespace {

constexpr long k_hundred = 100;
constexpr std::size_t k_key_bytes = 16;
constexpr std::size_t k_frame_block = 64U << 10;
constexpr int k_turns = 8;
constexpr std::size_t k_longest_head = 64U << 10;
constexpr std::size_t k_longest_refusal = 64U << 10;
constexpr std::chrono::seconds k_answer_timeout{30};

template <std::size_t Size>
std::array<unsigned char, Size> random_bytes() {
  std::array<unsigned char, Size> bytes{};
  fill_random(bytes);
  return bytes;
}

/// A header's value without surrounding spaces; empty if there is no such header.
std::string header_of(const std::string& head, std::string_view name) {
  const std::string wanted = lower_case(name) + ":";
  for (std::size_t start = 0; start < head.size();) {
    const std::size_t end = std::min(head.find("\r\n", start), head.size());
    const std::string line = head.substr(start, end - start);
    if (lower_case(line).starts_with(wanted)) {
      const std::size_t first = line.find_first_not_of(" \t", wanted.size());
      const std::size_t last = line.find_last_not_of(" \t");
      return first == std::string::npos ? "" : line.substr(first, last + 1 - first);
    }
    start = end + 2;
  }
  return {};
}

/// "HTTP/1.1 403 Forbidden": 403; 0 where it is no such line.
long status_of(const std::string& head) {
  constexpr std::string_view k_http_version = "HTTP/1.1 ";
  constexpr std::size_t k_digits = 3;
  if (!head.starts_with(k_http_version)) {
    return 0;
  }
  const std::string digits = head.substr(k_http_version.size(), k_digits);
  const bool good = digits.size() == k_digits &&
                    std::all_of(digits.begin(), digits.end(),
                                [](unsigned char c) { return std::isdigit(c) != 0; });
  return good ? std::stol(digits) : 0;
}

std::string upgrade_request(const HttpServer& server, const HttpRequest& request,
                            const std::vector<std::string>& protocols, const std::string& key) {
  const std::size_t host = server.url.find("://") + 3;
  const std::size_t prefix = server.url.find('/', host);
  std::string text = fmt::format(
      "GET {}{} HTTP/1.1\r\nHost: {}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
      "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {}\r\nSec-WebSocket-Protocol: {}\r\n"
      "User-Agent: dtrain\r\n",
      prefix == std::string::npos ? "" : server.url.substr(prefix), request.path,
      authority(server.url), key, fmt::join(protocols, ", "));
  const auto add = [&](const char* name, const std::string& value) {
    if (std::any_of(value.begin(), value.end(), [](char c) { return c == '\r' || c == '\n'; })) {
      throw UsageError(
          fmt::format("the kubeconfig's value for the header {} has a line break", name));
    }
    text += fmt::format("{}: {}\r\n", name, value);
  };
  if (!request.bearer_token.empty()) {
    add("Authorization", "Bearer " + request.bearer_token);
  } else if (!server.username.empty()) {
    add("Authorization", "Basic " + base64_encode(server.username + ":" + server.password));
  }
  if (!request.impersonate_user.empty()) {
    add("Impersonate-User", request.impersonate_user);
  }
  return text + "\r\n";
}

} // namespace

WebSocket::WebSocket(const HttpServer& server) : server_(server), handle_(curl_library()) {}

void WebSocket::fail(const std::string& what) const {
  throw EngineError(fmt::format("the connection to {} broke: {}", server_.url, printable(what)));
}

void WebSocket::wait(short events, Clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
  if (left.count() <= 0) {
    fail(fmt::format("no answer within {} s", k_answer_timeout.count()));
  }
  pollfd entry{fd_, events, 0};
  if (poll(&entry, 1, static_cast<int>(left.count())) < 0 && errno != EINTR) {
    fail("poll failed");
  }
}

std::size_t WebSocket::receive(char* data, std::size_t size, bool& closed) {
  std::size_t count = 0;
  const CURLcode code = handle_.curl.easy_recv(handle_.easy, data, size, &count);
  if (code == CURLE_AGAIN) {
    return 0;
  }
  if (code != CURLE_OK) {
    fail(handle_.words(code));
  }
  closed = count == 0;
  return count;
}

void WebSocket::flush() {
  while (unsent() > 0) {
    if (sent_ == in_flight_.size()) {
      in_flight_ = std::exchange(outgoing_, {});
      sent_ = 0;
    }
    std::size_t count = 0;
    const CURLcode code = handle_.curl.easy_send(handle_.easy, in_flight_.data() + sent_,
                                                 in_flight_.size() - sent_, &count);
    if (code == CURLE_AGAIN) {
      return;
    }
    if (code != CURLE_OK) {
      fail(handle_.words(code));
    }
    sent_ += count;
  }
}

std::string WebSocket::read_head(Clock::time_point deadline, std::string& rest) {
  constexpr std::string_view k_end = "\r\n\r\n";
  std::string bytes;
  std::array<char, k_frame_block> block; // NOLINT(*-member-init): only what was received is read
  for (;;) {
    bool closed = false;
    const std::size_t count = receive(block.data(), block.size(), closed);
    if (closed) {
      fail("the server closed it instead of answering");
    }
    bytes.append(block.data(), count);
    const std::size_t end = bytes.find(k_end);
    if (end != std::string::npos) {
      rest = bytes.substr(end + k_end.size());
      return bytes.substr(0, end);
    }
    if (bytes.size() > k_longest_head) {
      fail("the answer's header is too long");
    }
    if (count == 0) {
      wait(POLLIN, deadline);
    }
  }
}

HttpResponse WebSocket::read_refusal(long status, const std::string& head, std::string body,
                                     Clock::time_point deadline) {
  const std::string length_text = header_of(head, "Content-Length");
  std::size_t length =
      k_longest_refusal; // Length not given: until the connection's end, or a complete object.
  if (!length_text.empty() && length_text.size() < 6 &&
      length_text.find_first_not_of("0123456789") == std::string::npos) {
    length = std::min<std::size_t>(std::stoul(length_text), k_longest_refusal);
  }
  const bool chunked = lower_case(header_of(head, "Transfer-Encoding")) == "chunked";
  std::array<char, k_frame_block> block; // NOLINT(*-member-init): only what was received is read
  bool closed = false;
  while (!closed && body.size() < length && !(chunked && body.ends_with("0\r\n\r\n"))) {
    const std::size_t count = receive(block.data(), block.size(), closed);
    body.append(block.data(), count);
    if (count == 0 && !closed) {
      wait(POLLIN, deadline);
    }
  }
  if (chunked) { // In a Status, which is one short object, only the braces matter.
    const std::size_t first = body.find('{');
    const std::size_t last = body.rfind('}');
    body = first < last && last != std::string::npos ? body.substr(first, last + 1 - first) : body;
  }
  HttpResponse response;
  response.status = status;
  response.body = std::move(body);
  return response;
}

HttpResponse WebSocket::connect(const HttpRequest& request,
                                const std::vector<std::string>& protocols) {
  handle_.aim(server_, "/");
  handle_.set(CURLOPT_CONNECT_ONLY, 1L);
  handle_.set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  handle_.set(CURLOPT_HTTPPROXYTUNNEL, 1L);
  if (const CURLcode code = handle_.curl.easy_perform(handle_.easy); code != CURLE_OK) {
    HttpResponse unreachable;
    unreachable.error = handle_.words(code);
    return unreachable;
  }
  curl_socket_t socket = CURL_SOCKET_BAD;
  handle_.curl.easy_getinfo(handle_.easy, CURLINFO_ACTIVESOCKET, &socket);
  if (socket == CURL_SOCKET_BAD) {
    throw EngineError("libcurl does not give the socket that it opened");
  }
  fd_ = socket;
  const auto deadline = Clock::now() + k_answer_timeout;
  const auto key_bytes = random_bytes<k_key_bytes>();
  const std::string key =
      base64_encode({reinterpret_cast<const char*>(key_bytes.data()), key_bytes.size()});
  outgoing_ = upgrade_request(server_, request, protocols, key);
  for (flush(); unsent() > 0; flush()) {
    wait(POLLOUT, deadline);
  }
  std::string rest;
  const std::string head = read_head(deadline, rest);
  const long status = status_of(head);
  if (status == 0) {
    fail("its answer is not HTTP/1.1");
  }
  if (status != k_switching_protocols && status / k_hundred != 2) {
    return read_refusal(status, head, std::move(rest), deadline);
  }
  protocol_ = header_of(head, "Sec-WebSocket-Protocol");
  if (status != k_switching_protocols || lower_case(header_of(head, "Upgrade")) != "websocket" ||
      header_of(head, "Sec-WebSocket-Accept") != accept_of(key) ||
      std::find(protocols.begin(), protocols.end(), protocol_) == protocols.end()) {
    throw EngineError(fmt::format("{} does not speak {} over WebSocket", server_.url,
                                  fmt::join(protocols, " or ")));
  }
  reader_.feed(rest);
  heard_ = pinged_ = Clock::now();
  HttpResponse agreed;
  agreed.status = status;
  return agreed;
}

short WebSocket::events() const {
  return static_cast<short>(POLLIN | (unsent() > 0 ? POLLOUT : 0));
}

void WebSocket::queue(Opcode opcode, std::string_view payload) {
  outgoing_ += client_frame(opcode, payload, random_bytes<std::tuple_size_v<Mask>>());
}

void WebSocket::send(std::string_view message) { queue(Opcode::binary, message); }

void WebSocket::pump() {
  std::array<char, k_frame_block> block; // NOLINT(*-member-init): only what was received is read
  bool closed = false;
  // Takes all that TLS has decrypted, in turns: poll() only sees what is still in the socket.
  has_more_ = false;
  for (int turn = 0; !ended_ && !closed && turn < k_turns; ++turn) {
    const std::size_t count = receive(block.data(), block.size(), closed);
    if (count == 0) {
      break;
    }
    reader_.feed({block.data(), count});
    heard_ = Clock::now();
    has_more_ = turn + 1 == k_turns;
  }
  ended_ = ended_ || closed;
  const auto now = Clock::now();
  if (!ended_ && now - heard_ > k_silence) {
    fail(fmt::format("it has not answered for {} s", k_silence.count()));
  }
  if (!ended_ && now - heard_ > k_ping_interval && now - pinged_ > k_ping_interval) {
    queue(Opcode::ping, "");
    pinged_ = now;
  }
  if (!ended_) {
    flush();
  }
}

std::optional<std::string> WebSocket::next() {
  while (std::optional<Message> message = reader_.next()) {
    switch (message->opcode) {
    case Opcode::ping:
      queue(Opcode::pong, message->payload);
      break;
    case Opcode::pong:
      break;
    case Opcode::close:
      ended_ = true;
      return std::nullopt;
    default:
      return std::move(message->payload);
    }
  }
  return std::nullopt;
}

} // namespace dtrain::kubernetes
