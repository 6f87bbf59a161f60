// HTTP/2 to one server over libcurl: requests that wait for their answer, and streams (watches,
// followed logs) that run beside them on the same connection.
//
// One thread, one event loop. Nothing moves unless call(), call_all() or run_once() is running;
// while a call waits for its answer, the streams' handlers are held back, so that a handler may
// itself make calls. Streams that bring more than handlers have had wait in their sockets once
// k_most_pending bytes are held.
#pragma once

#include "backends/support/http/curl_library.h"
#include "backends/support/http/http_server.h"

#include <chrono>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace dtrain::kubernetes {

struct HttpRequest {
  std::string method = "GET";
  std::string path; ///< With its query: "/api/v1/pods?limit=500".
  std::string body;
  std::string content_type; ///< Type of the body.
  std::string accept = "application/json";
  std::string bearer_token;     ///< Empty: none.
  std::string impersonate_user; ///< Empty: ourselves.
};

struct HttpResponse {
  long status = 0; ///< 0: the server was not reached.
  std::string body;
  std::string error; ///< libcurl's words, where it was not reached or broke off.
  std::string retry_after;
  std::string date; ///< In lower case: "sun, 22 nov 2026 12:00:00 gmt".
};

/// A request whose answer comes in pieces for as long as the server sends.
struct StreamHandler {
  /// Bytes of a 2xx answer. False ends the stream (without on_end).
  std::function<bool(std::string_view)> on_data;
  /// The server ended it, or refused: `body` holds the text of an answer that is not 2xx.
  std::function<void(const HttpResponse&)> on_end;
};

class HttpClient {
 public:
  using StreamId = std::uint64_t;
  static constexpr std::size_t k_most_pending = 16U << 20U;

  /// Opens nothing yet. Throws EngineError where libcurl is missing.
  explicit HttpClient(HttpServer server);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  const HttpServer& server() const { return server_; }
  void replace_client_certificate(std::string cert_pem, std::string key_pem);

  HttpResponse call(const HttpRequest& request);

  /// Sends requests one after the other on one connection; answers are in the order of the
  /// requests.
  std::vector<HttpResponse> call_all(const std::vector<HttpRequest>& requests);

  StreamId open(const HttpRequest& request, StreamHandler handler);

  /// Ends a stream without calling its handler. Unknown ids are ignored.
  void close(StreamId id);

  /// Waits for the next piece of any stream, at most `wait`, and calls handlers.
  /// False where no stream is open.
  bool run_once(std::chrono::milliseconds wait);

 private:
  struct Transfer;

  std::unique_ptr<Transfer> start(const HttpRequest& request);
  enum class Try {
    only,
    first,  ///< Is given up early where no byte comes.
    second, ///< On a connection of its own.
  };
  /// Runs the request to its end.
  std::unique_ptr<Transfer> call_once(const HttpRequest& request, Try which);
  void finish(Transfer& transfer, CURLcode code);
  void drive(std::chrono::milliseconds wait, bool for_streams);
  bool has_news() const;
  void deliver();
  void drop_closed();
  static std::size_t on_body(char* data, std::size_t size, std::size_t count, void* transfer);
  static std::size_t on_header(char* data, std::size_t size, std::size_t count, void* transfer);

  const CurlLibrary& curl_;
  HttpServer server_;
  CURLM* multi_ = nullptr;
  std::list<std::unique_ptr<Transfer>> streams_;
  StreamId next_id_ = 1;
  std::size_t pending_bytes_ = 0; // Of all streams, for their handlers.
};

} // namespace dtrain::kubernetes
