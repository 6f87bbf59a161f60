#include "backends/support/http/curl_library.h"

#include "backends/support/os/shared_library.h"
#include "submit/errors.h"

#include <fmt/format.h>

namespace dtrain {
namespace {

constexpr const char* k_library = "libcurl.so.4";

CurlLibrary load() {
  const SharedLibrary library(k_library, "to reach a cluster or a bucket",
                              "on Debian, install the package libcurl4");
  const auto find = [&](const char* name, auto& function) {
    library.find(name, function, "version 7.66 or later");
  };
  decltype(&::curl_global_init) global_init = nullptr;
  find("curl_global_init", global_init);
  CurlLibrary curl{};
  find("curl_easy_init", curl.easy_init);
  find("curl_easy_cleanup", curl.easy_cleanup);
  find("curl_easy_setopt", curl.easy_setopt);
  find("curl_easy_getinfo", curl.easy_getinfo);
  find("curl_easy_perform", curl.easy_perform);
  find("curl_easy_send", curl.easy_send);
  find("curl_easy_recv", curl.easy_recv);
  find("curl_easy_pause", curl.easy_pause);
  find("curl_easy_strerror", curl.easy_strerror);
  find("curl_multi_init", curl.multi_init);
  find("curl_multi_cleanup", curl.multi_cleanup);
  find("curl_multi_setopt", curl.multi_setopt);
  find("curl_multi_add_handle", curl.multi_add_handle);
  find("curl_multi_remove_handle", curl.multi_remove_handle);
  find("curl_multi_perform", curl.multi_perform);
  find("curl_multi_poll", curl.multi_poll);
  find("curl_multi_info_read", curl.multi_info_read);
  find("curl_multi_strerror", curl.multi_strerror);
  find("curl_slist_append", curl.slist_append);
  find("curl_slist_free_all", curl.slist_free_all);
  if (global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
    throw EngineError(fmt::format("{} cannot be initialised", k_library));
  }
  return curl;
}

} // namespace

const CurlLibrary& curl_library() {
  static const CurlLibrary curl = load();
  return curl;
}

} // namespace dtrain
