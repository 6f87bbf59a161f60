#include "backends/support/http/curl_handle.h"
#include "submit/options/environment.h"

#include <cstdlib>

namespace dtrain {
namespace {

constexpr long k_connect_timeout_s = 10;
constexpr long k_keepalive_idle_s = 30;
constexpr long k_keepalive_interval_s = 10;

curl_blob blob(const std::string& text) {
  return {const_cast<char*>(text.data()), text.size(), CURL_BLOB_NOCOPY};
}

} // namespace

std::string authority(const std::string& url) {
  std::size_t start = url.find("://");
  bool is_plain = url.starts_with("http://");
  start = start == std::string::npos ? 0 : start + 3;
  std::string host = url.substr(start, url.find('/', start) - start);
  std::size_t bracket = host.rfind(']');
  std::size_t colon = host.rfind(':');
  bool has_port = colon != std::string::npos && (bracket == std::string::npos || colon > bracket);
  return has_port ? host : host + (is_plain ? ":80" : ":443");
}

CurlHandle::CurlHandle(const CurlLibrary& library) : curl(library), easy(library.easy_init()) {
  if (easy == nullptr) {
    throw EngineError("libcurl cannot start a request: out of memory");
  }
}

CurlHandle::~CurlHandle() {
  curl.easy_cleanup(easy);
  curl.slist_free_all(headers);
  curl.slist_free_all(connect_to_);
}

void CurlHandle::aim(const HttpServer& server, const std::string& path) {
  std::string url = server.url + path;
  if (!server.tls_server_name.empty()) {
    // libcurl verifies the URL's host, so the URL gets the name and the connection the address.
    std::size_t scheme = server.url.find("://");
    std::size_t prefix = server.url.find('/', scheme == std::string::npos ? 0 : scheme + 3);
    url = "https://" + server.tls_server_name +
          (prefix == std::string::npos ? "" : server.url.substr(prefix)) + path;
    connect_to_ = curl.slist_append(nullptr, ("::" + authority(server.url)).c_str());
    set(CURLOPT_CONNECT_TO, connect_to_);
  }
  set(CURLOPT_URL, url.c_str());
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_CONNECTTIMEOUT, k_connect_timeout_s);
  set(CURLOPT_TCP_KEEPALIVE, 1L);
  set(CURLOPT_TCP_KEEPIDLE, k_keepalive_idle_s);
  set(CURLOPT_TCP_KEEPINTVL, k_keepalive_interval_s);
  set(CURLOPT_ERRORBUFFER, &error_[0]);
  if (!server.proxy.empty()) {
    set(CURLOPT_PROXY, server.proxy.c_str());
  }
  if (server.insecure) {
    set(CURLOPT_SSL_VERIFYPEER, 0L);
    set(CURLOPT_SSL_VERIFYHOST, 0L);
  } else if (!server.ca_pem.empty()) {
    curl_blob ca = blob(server.ca_pem);
    set(CURLOPT_CAINFO_BLOB, &ca);
  } else if (const char* file = environment::k_certificates.value(); file != nullptr) {
    set(CURLOPT_CAINFO, file);
  }
  if (!server.client_cert_pem.empty()) {
    curl_blob cert = blob(server.client_cert_pem);
    curl_blob key = blob(server.client_key_pem);
    set(CURLOPT_SSLCERT_BLOB, &cert);
    set(CURLOPT_SSLKEY_BLOB, &key);
  }
}

} // namespace dtrain
