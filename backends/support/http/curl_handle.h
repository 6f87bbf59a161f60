// The libcurl handle of a transfer, and its settings for the server.
#pragma once

#include "backends/support/http/curl_library.h"
#include "backends/support/http/http_server.h"
#include "submit/errors.h"

#include <fmt/format.h>

#include <string>

namespace dtrain {

/// "host:port" of a URL, with the scheme's port where it names none.
std::string authority(const std::string& url);

/// Stays at one address: libcurl holds pointers into it, and into the HttpServer.
class CurlHandle {
 public:
  /// Throws EngineError where memory is short.
  explicit CurlHandle(const CurlLibrary& library);
  ~CurlHandle();
  CurlHandle(const CurlHandle&) = delete;
  CurlHandle& operator=(const CurlHandle&) = delete;

  /// URL, proxy, whom to trust and who we are; time limits of the connection. `path` begins with /.
  void aim(const HttpServer& server, const std::string& path);

  void header(const std::string& line) { headers = curl.slist_append(headers, line.c_str()); }

  template <typename Value>
  void set(CURLoption option, Value value) {
    const CURLcode code = curl.easy_setopt(easy, option, value);
    if (code != CURLE_OK) {
      throw EngineError(fmt::format("libcurl refuses option {}: {}", static_cast<int>(option),
                                    curl.easy_strerror(code)));
    }
  }

  /// libcurl's words about `code`.
  std::string words(CURLcode code) const {
    return error_[0] != '\0' ? &error_[0] : curl.easy_strerror(code);
  }

  const CurlLibrary& curl;
  CURL* easy;
  curl_slist* headers = nullptr; ///< To be set as CURLOPT_HTTPHEADER once all are added.

 private:
  curl_slist* connect_to_ = nullptr;
  char error_[CURL_ERROR_SIZE] = {};
};

} // namespace dtrain
