// A WebSocket to the API server: what exec, attach and port forwarding speak.
//
// Debian 12's libcurl has no WebSocket of its own. It makes the connection (TCP, proxy, TLS, client
// certificate); the upgrade of HTTP/1.1 and the frames are ours.
#pragma once

#include "backends/kubernetes/api/http_client.h"
#include "backends/kubernetes/api/web_socket_frames.h"
#include "backends/support/http/curl_handle.h"

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dtrain::kubernetes {

class WebSocket {
 public:
  using Clock = std::chrono::steady_clock;

  /// Connects to nothing yet; `server` must outlive it.
  explicit WebSocket(const HttpServer& server);

  /// Connects and asks for one of `protocols`, best first. Returns status 101 if the server agrees,
  /// 0 if it cannot be reached; otherwise its answer, and the socket cannot be used.
  HttpResponse connect(const HttpRequest& request, const std::vector<std::string>& protocols);

  const std::string& protocol() const { return protocol_; } ///< The one agreed on.

  int fd() const { return fd_; } ///< For poll().

  /// Events for pump(): POLLIN, and POLLOUT while something is unsent.
  short events() const;

  /// Queues a binary message.
  void send(std::string_view message);

  /// Bytes queued.
  std::size_t unsent() const { return outgoing_.size() + in_flight_.size() - sent_; }

  /// Sends and receives what can be without waiting. To be called when fd() is ready, at once where
  /// has_more(), and at least every k_ping_interval. Throws EngineError where the connection
  /// breaks, or the server says nothing for k_silence.
  void pump();

  /// More has come than one pump() reads.
  bool has_more() const { return has_more_; }

  /// The next binary message that has come.
  std::optional<std::string> next();

  /// The server ended it: after its last message, there is nothing to come.
  bool ended() const { return ended_; }

  static constexpr std::chrono::seconds k_ping_interval{15};
  static constexpr std::chrono::seconds k_silence{60};

 private:
  void queue(Opcode opcode, std::string_view payload);
  std::size_t receive(char* data, std::size_t size, bool& closed);
  void flush();
  void wait(short events, Clock::time_point deadline);
  std::string read_head(Clock::time_point deadline, std::string& rest);
  HttpResponse read_refusal(long status, const std::string& head, std::string body,
                            Clock::time_point deadline);
  [[noreturn]] void fail(const std::string& what) const;

  const HttpServer& server_;
  CurlHandle handle_;
  int fd_ = -1;
  std::string protocol_;
  FrameReader reader_;
  std::string outgoing_;
  std::string in_flight_; // OpenSSL requires a partly sent buffer again at the same address.
  std::size_t sent_ = 0;  // In in_flight_.
  bool has_more_ = false;
  bool ended_ = false;
  Clock::time_point heard_; // The last bytes from the server.
  Clock::time_point pinged_;
};

} // namespace dtrain::kubernetes
