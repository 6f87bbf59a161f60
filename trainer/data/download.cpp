#include "trainer/data/download.h"

#include <curl/curl.h>
#include <dlfcn.h>
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

/// libcurl is loaded at the first download: few ranks download, and it loads 33 libraries.
struct Curl {
  decltype(&::curl_easy_init) init = nullptr;
  decltype(&::curl_easy_cleanup) cleanup = nullptr;
  decltype(&::curl_easy_setopt) setopt = nullptr;
  decltype(&::curl_easy_perform) perform = nullptr;
  decltype(&::curl_easy_strerror) error_text = nullptr;

  Curl() {
    void* library = dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);
    find(library, "curl_easy_init", init);
    find(library, "curl_easy_cleanup", cleanup);
    find(library, "curl_easy_setopt", setopt);
    find(library, "curl_easy_perform", perform);
    find(library, "curl_easy_strerror", error_text);
  }

 private:
  template <typename Function>
  static void find(void* library, const char* name, Function& function) {
    function = reinterpret_cast<Function>(library == nullptr ? nullptr : ::dlsym(library, name));
    if (function == nullptr) {
      throw Error(
          fmt::format("a download needs libcurl.so.4, which cannot be loaded ({}): install "
                      "it (on Debian, the package libcurl4), or put the data on this machine",
                      dlerror()));
    }
  }
};

const Curl& curl_library() {
  static const Curl curl;
  return curl;
}

struct Cleanup {
  void operator()(CURL* handle) const { curl_library().cleanup(handle); }
  void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
};

/// Receives the bytes as they arrive.
struct Sink {
  AtomicFile file;
  std::unique_ptr<EVP_MD_CTX, Cleanup> digest;
  std::string error; ///< Error of writing the file; exceptions must not cross libcurl.
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
  const Curl& library = curl_library();
  const std::unique_ptr<CURL, Cleanup> curl(library.init());
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
  library.setopt(handle, CURLOPT_URL, what.url.c_str());
  library.setopt(handle, CURLOPT_PROTOCOLS_STR, "http,https,file");
  library.setopt(handle, CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
  library.setopt(handle, CURLOPT_FOLLOWLOCATION, 1L);
  library.setopt(handle, CURLOPT_MAXREDIRS, k_redirects);
  library.setopt(handle, CURLOPT_FAILONERROR, 1L);
  library.setopt(handle, CURLOPT_NOSIGNAL, 1L);
  library.setopt(handle, CURLOPT_CONNECTTIMEOUT, k_connect_seconds);
  library.setopt(handle, CURLOPT_LOW_SPEED_LIMIT, 1L);
  library.setopt(handle, CURLOPT_LOW_SPEED_TIME, k_stall_seconds);
  library.setopt(handle, CURLOPT_ERRORBUFFER, message.data());
  library.setopt(handle, CURLOPT_WRITEFUNCTION, on_data);
  library.setopt(handle, CURLOPT_WRITEDATA, &sink);
  library.setopt(handle, CURLOPT_XFERINFOFUNCTION, on_progress);
  library.setopt(handle, CURLOPT_XFERINFODATA, &sink);
  library.setopt(handle, CURLOPT_NOPROGRESS, 0L);
  const CURLcode code = library.perform(handle);
  if (what.progress_bar) {
    fmt::print(stderr, "\r\033[K");
  }
  if (!sink.error.empty()) {
    throw Error(sink.error);
  }
  if (code != CURLE_OK) {
    throw Error(fmt::format("{}: {}", what.url,
                            message[0] != '\0' ? message.data() : library.error_text(code)));
  }
  const std::string digest = hex_digest(sink.digest.get());
  if (digest != what.sha256) {
    throw Error(fmt::format("{}: its SHA-256 is {}, not {}", what.url, digest, what.sha256));
  }
  sink.file.commit();
}

} // namespace trainer
