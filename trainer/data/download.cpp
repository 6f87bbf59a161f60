#include "trainer/data/download.h"

#include <curl/curl.h>
#include <fmt/format.h>
#include <openssl/evp.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <span>

#include "trainer/clock.h"
#include "trainer/errors.h"
#include "trainer/files.h"

namespace trainer {
namespace {

constexpr long k_connect_seconds = 15;
constexpr long k_stall_seconds = 30;
constexpr long k_redirects = 5;
constexpr double k_mib = 1024.0 * 1024.0;
constexpr double k_download_redraw_seconds = 0.1;

struct Cleanup {
  void operator()(CURL* handle) const { curl_easy_cleanup(handle); }
  void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
};

/// Where the bytes go as they arrive.
struct Sink {
  AtomicFile file;
  std::unique_ptr<EVP_MD_CTX, Cleanup> digest;
  std::string error; ///< Of the file; exceptions must not cross libcurl.
  std::string name;
  bool progress_bar;
  double drawn_at = 0;
};

std::size_t on_data(const char* data, std::size_t, std::size_t size, void* user) {
  Sink& sink = *static_cast<Sink*>(user);
  try {
    sink.file.write(std::as_bytes(std::span(data, size)));
  } catch (const Error& error) {
    sink.error = error.what();
    return 0;
  }
  EVP_DigestUpdate(sink.digest.get(), data, size);
  return size;
}

int on_progress(void* user, curl_off_t total, curl_off_t done, curl_off_t, curl_off_t) {
  Sink& sink = *static_cast<Sink*>(user);
  if (sink.progress_bar && total > 0 && now() - sink.drawn_at > k_download_redraw_seconds) {
    sink.drawn_at = now();
    fmt::print(stderr, "\r{}  {:5.1f} of {:.1f} MiB  {:3.0f} %\033[K", sink.name,
               static_cast<double>(done) / k_mib, static_cast<double>(total) / k_mib,
               100 * static_cast<double>(done) / static_cast<double>(total));
  }
  return 0;
}

std::string hex_digest(EVP_MD_CTX* context) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> bytes{};
  unsigned size = 0;
  EVP_DigestFinal_ex(context, bytes.data(), &size);
  std::string text;
  for (unsigned i = 0; i < size; ++i) {
    text += fmt::format("{:02x}", bytes[i]);
  }
  return text;
}

} // namespace

void download(const Download& what) {
  const std::unique_ptr<CURL, Cleanup> curl(curl_easy_init());
  Sink sink{AtomicFile(what.path),
            std::unique_ptr<EVP_MD_CTX, Cleanup>(EVP_MD_CTX_new()),
            {},
            std::filesystem::path(what.path).filename().string(),
            what.progress_bar};
  if (!curl || !sink.digest || EVP_DigestInit_ex(sink.digest.get(), EVP_sha256(), nullptr) != 1) {
    throw Error("libcurl or libcrypto cannot start");
  }
  std::array<char, CURL_ERROR_SIZE> message{};
  CURL* handle = curl.get();
  curl_easy_setopt(handle, CURLOPT_URL, what.url.c_str());
  curl_easy_setopt(handle, CURLOPT_PROTOCOLS_STR, "http,https,file");
  curl_easy_setopt(handle, CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(handle, CURLOPT_FOLLOWLOCATION, 1L);
  curl_easy_setopt(handle, CURLOPT_MAXREDIRS, k_redirects);
  curl_easy_setopt(handle, CURLOPT_FAILONERROR, 1L);
  curl_easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(handle, CURLOPT_CONNECTTIMEOUT, k_connect_seconds);
  curl_easy_setopt(handle, CURLOPT_LOW_SPEED_LIMIT, 1L);
  curl_easy_setopt(handle, CURLOPT_LOW_SPEED_TIME, k_stall_seconds);
  curl_easy_setopt(handle, CURLOPT_ERRORBUFFER, message.data());
  curl_easy_setopt(handle, CURLOPT_WRITEFUNCTION, on_data);
  curl_easy_setopt(handle, CURLOPT_WRITEDATA, &sink);
  curl_easy_setopt(handle, CURLOPT_XFERINFOFUNCTION, on_progress);
  curl_easy_setopt(handle, CURLOPT_XFERINFODATA, &sink);
  curl_easy_setopt(handle, CURLOPT_NOPROGRESS, 0L);
  const CURLcode code = curl_easy_perform(handle);
  if (what.progress_bar) {
    fmt::print(stderr, "\r\033[K");
  }
  if (!sink.error.empty()) {
    throw Error(sink.error);
  }
  if (code != CURLE_OK) {
    throw Error(fmt::format("{}: {}", what.url,
                            message[0] != '\0' ? message.data() : curl_easy_strerror(code)));
  }
  const std::string digest = hex_digest(sink.digest.get());
  if (digest != what.sha256) {
    throw Error(fmt::format("{}: its SHA-256 is {}, not {}", what.url, digest, what.sha256));
  }
  sink.file.commit();
}

} // namespace trainer
