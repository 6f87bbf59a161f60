#include "backends/kubernetes/curl_library.h"

#include "submit/errors.h"

#include <fmt/format.h>

#include <dlfcn.h>

namespace dtrain::kubernetes {
namespace {

constexpr const char* k_library = "libcurl.so.4";

void* open_library() {
  void* library = dlopen(k_library, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    throw EngineError(fmt::format("{} is needed to reach a Kubernetes cluster and cannot be loaded "
                                  "({}); on Debian, install the package libcurl4",
                                  k_library, dlerror()));
  }
  return library;
}

template <typename Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr) {
    throw EngineError(
        fmt::format("{} has no {}: version 7.66 or later is needed", k_library, name));
  }
}

CurlLibrary load() {
  void* library = open_library();
  decltype(&::curl_global_init) global_init = nullptr;
  find(library, "curl_global_init", global_init);
  CurlLibrary curl{};
  find(library, "curl_easy_init", curl.easy_init);
  find(library, "curl_easy_cleanup", curl.easy_cleanup);
  find(library, "curl_easy_setopt", curl.easy_setopt);
  find(library, "curl_easy_getinfo", curl.easy_getinfo);
  find(library, "curl_easy_strerror", curl.easy_strerror);
  find(library, "curl_multi_init", curl.multi_init);
  find(library, "curl_multi_cleanup", curl.multi_cleanup);
  find(library, "curl_multi_setopt", curl.multi_setopt);
  find(library, "curl_multi_add_handle", curl.multi_add_handle);
  find(library, "curl_multi_remove_handle", curl.multi_remove_handle);
  find(library, "curl_multi_perform", curl.multi_perform);
  find(library, "curl_multi_poll", curl.multi_poll);
  find(library, "curl_multi_info_read", curl.multi_info_read);
  find(library, "curl_multi_strerror", curl.multi_strerror);
  find(library, "curl_slist_append", curl.slist_append);
  find(library, "curl_slist_free_all", curl.slist_free_all);
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

} // namespace dtrain::kubernetes
