#include "backends/kubernetes/api/http_client.h"

#include "backends/support/http/curl_handle.h"

#include "submit/errors.h"
#include "submit/text/lower_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace dtrain::kubernetes {
namespace {

constexpr long k_call_timeout_s = 60;
constexpr long k_silence_s = 20;
constexpr long k_connection_cache = 16;

} // namespace

/// A request in progress.
struct HttpClient::Transfer : CurlHandle {
  CURLM* multi;
  StreamId id = 0;
  StreamHandler handler; // Only a stream has one.
  HttpRequest request;
  HttpResponse response;
  std::string pending;                // A stream's bytes that its handler has not had.
  std::size_t* all_pending = nullptr; // Of all streams.
  bool paused = false;                // Has more, which libcurl keeps.
  bool is_stream = false;
  bool done = false;
  bool timed_out = false;
  bool closed = false;

  Transfer(const CurlLibrary& library, CURLM* loop) : CurlHandle(library), multi(loop) {}
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;
  ~Transfer() { curl.multi_remove_handle(multi, easy); }
};

HttpClient::HttpClient(HttpServer server)
    : curl_(curl_library()), server_(std::move(server)), multi_(curl_.multi_init()) {
  if (multi_ == nullptr) {
    throw EngineError("libcurl cannot start: out of memory");
  }
  curl_.multi_setopt(multi_, CURLMOPT_PIPELINING, CURLPIPE_MULTIPLEX);
  curl_.multi_setopt(multi_, CURLMOPT_MAXCONNECTS, k_connection_cache);
}

HttpClient::~HttpClient() {
  streams_.clear();
  curl_.multi_cleanup(multi_);
}

void HttpClient::replace_client_certificate(std::string cert_pem, std::string key_pem) {
  server_.client_cert_pem = std::move(cert_pem);
  server_.client_key_pem = std::move(key_pem);
}

std::size_t HttpClient::on_body(char* data, std::size_t size, std::size_t count, void* transfer) {
  auto& self = *static_cast<Transfer*>(transfer);
  std::size_t bytes = size * count;
  long status = 0;
  self.curl.easy_getinfo(self.easy, CURLINFO_RESPONSE_CODE, &status);
  if (!self.is_stream || status < 200 || status >= 300) {
    self.response.body.append(data, bytes);
    return bytes;
  }
  if (*self.all_pending + bytes > k_most_pending) {
    self.paused = true;
    return CURL_WRITEFUNC_PAUSE;
  }
  self.pending.append(data, bytes);
  *self.all_pending += bytes;
  return bytes;
}

std::size_t HttpClient::on_header(char* data, std::size_t size, std::size_t count, void* transfer) {
  auto& self = *static_cast<Transfer*>(transfer);
  const std::string line = lower_case({data, size * count});
  constexpr std::string_view k_retry_after = "retry-after:";
  constexpr std::string_view k_date = "date: ";
  if (line.starts_with(k_retry_after)) {
    self.response.retry_after = line.substr(k_retry_after.size());
  } else if (line.starts_with(k_date)) {
    self.response.date = line.substr(k_date.size());
  }
  return size * count;
}

std::unique_ptr<HttpClient::Transfer> HttpClient::start(const HttpRequest& request) {
  auto transfer = std::make_unique<Transfer>(curl_, multi_);
  Transfer& t = *transfer;
  t.request = request;
  t.aim(server_, request.path);
  if (!server_.tls_server_name.empty()) {
    t.header("Host: " + authority(server_.url));
  }
  t.set(CURLOPT_CUSTOMREQUEST, t.request.method.c_str());
  t.set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_2TLS));
  t.set(CURLOPT_PIPEWAIT, 1L);
  t.set(CURLOPT_WRITEFUNCTION, &HttpClient::on_body);
  t.set(CURLOPT_WRITEDATA, &t);
  t.set(CURLOPT_HEADERFUNCTION, &HttpClient::on_header);
  t.set(CURLOPT_HEADERDATA, &t);
  t.set(CURLOPT_PRIVATE, &t);
  if (!server_.username.empty()) {
    t.set(CURLOPT_USERNAME, server_.username.c_str());
    t.set(CURLOPT_PASSWORD, server_.password.c_str());
  }
  t.header("Accept: " + request.accept);
  t.header("User-Agent: dtrain");
  if (!request.bearer_token.empty()) {
    t.header("Authorization: Bearer " + request.bearer_token);
  }
  if (!request.impersonate_user.empty()) {
    t.header("Impersonate-User: " + request.impersonate_user);
  }
  if (!t.request.body.empty()) {
    t.header("Content-Type: " + request.content_type);
    t.header("Expect:");
    t.set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(t.request.body.size()));
    t.set(CURLOPT_POSTFIELDS, t.request.body.c_str());
  }
  t.set(CURLOPT_HTTPHEADER, t.headers);
  return transfer;
}

void HttpClient::finish(Transfer& transfer, CURLcode code) {
  transfer.done = true;
  transfer.timed_out = code == CURLE_OPERATION_TIMEDOUT;
  curl_.easy_getinfo(transfer.easy, CURLINFO_RESPONSE_CODE, &transfer.response.status);
  if (code != CURLE_OK) {
    transfer.response.error = transfer.words(code);
    if (!transfer.is_stream) {
      transfer.response.status = 0;
    }
  }
}

bool HttpClient::has_news() const {
  return std::any_of(streams_.begin(), streams_.end(),
                     [](const auto& s) { return s->closed || s->done || !s->pending.empty(); });
}

void HttpClient::drive(std::chrono::milliseconds wait, bool for_streams) {
  int running = 0;
  auto check = [this](CURLMcode code) {
    if (code != CURLM_OK) {
      throw EngineError(fmt::format("libcurl: {}", curl_.multi_strerror(code)));
    }
  };
  check(curl_.multi_perform(multi_, &running));
  int left = 0;
  bool moved = false;
  auto collect = [&] {
    while (CURLMsg* message = curl_.multi_info_read(multi_, &left)) {
      if (message->msg == CURLMSG_DONE) {
        Transfer* transfer = nullptr;
        curl_.easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &transfer);
        finish(*transfer, message->data.result);
        moved = true;
      }
    }
  };
  collect();
  if (moved || running == 0 || (for_streams && has_news())) {
    return;
  }
  check(curl_.multi_poll(multi_, nullptr, 0, static_cast<int>(wait.count()), nullptr));
  check(curl_.multi_perform(multi_, &running));
  collect();
}

void HttpClient::deliver() {
  // A handler may open and close streams: a closed one stays in the list until the end.
  for (auto it = streams_.begin(); it != streams_.end(); ++it) {
    Transfer& t = **it;
    if (!t.closed && !t.pending.empty()) {
      std::string bytes = std::exchange(t.pending, {});
      pending_bytes_ -= bytes.size();
      if (!t.handler.on_data(bytes)) {
        t.closed = true;
      }
    }
    if (!t.closed && t.done) {
      t.closed = true;
      if (t.handler.on_end) {
        t.handler.on_end(t.response);
      }
    }
  }
  drop_closed();
  for (const auto& stream : streams_) {
    if (std::exchange(stream->paused, false)) {
      curl_.easy_pause(stream->easy, CURLPAUSE_CONT); // May pause again.
    }
  }
}

void HttpClient::drop_closed() {
  streams_.remove_if([&](const auto& s) {
    pending_bytes_ -= s->closed ? s->pending.size() : 0;
    return s->closed;
  });
}

std::vector<HttpResponse> HttpClient::call_all(const std::vector<HttpRequest>& requests) {
  std::vector<HttpResponse> responses;
  responses.reserve(requests.size());
  // One after the other: when two answers arrive at once on a connection, libcurl 7.88 sometimes
  // leaves one unread for good.
  for (const HttpRequest& request : requests) {
    // A busy server's answer may stay away on a connection that streams share: what only reads asks
    // once more, on one of its own.
    const bool reads = request.method == "GET";
    std::unique_ptr<Transfer> transfer = call_once(request, reads ? Try::first : Try::only);
    if (reads && transfer->timed_out) {
      transfer = call_once(request, Try::second);
    }
    responses.push_back(std::move(transfer->response));
  }
  return responses;
}

std::unique_ptr<HttpClient::Transfer> HttpClient::call_once(const HttpRequest& request, Try which) {
  std::unique_ptr<Transfer> transfer = start(request);
  transfer->set(CURLOPT_TIMEOUT, k_call_timeout_s);
  if (which == Try::first) {
    transfer->set(CURLOPT_LOW_SPEED_LIMIT, 1L);
    transfer->set(CURLOPT_LOW_SPEED_TIME, k_silence_s);
  } else if (which == Try::second) {
    transfer->set(CURLOPT_FRESH_CONNECT, 1L);
  }
  curl_.multi_add_handle(multi_, transfer->easy);
  while (!transfer->done) {
    drive(std::chrono::seconds(1), false);
  }
  return transfer;
}

HttpResponse HttpClient::call(const HttpRequest& request) {
  return std::move(call_all({request}).front());
}

HttpClient::StreamId HttpClient::open(const HttpRequest& request, StreamHandler handler) {
  auto transfer = start(request);
  transfer->is_stream = true;
  transfer->id = next_id_++;
  transfer->handler = std::move(handler);
  transfer->all_pending = &pending_bytes_;
  curl_.multi_add_handle(multi_, transfer->easy);
  streams_.push_back(std::move(transfer));
  return streams_.back()->id;
}

void HttpClient::close(StreamId id) {
  for (const auto& stream : streams_) {
    if (stream->id == id) {
      stream->closed = true;
    }
  }
}

bool HttpClient::run_once(std::chrono::milliseconds wait) {
  drop_closed();
  if (streams_.empty()) {
    return false;
  }
  drive(wait, true);
  deliver();
  return true;
}

} // namespace dtrain::kubernetes
