// libcurl, loaded when the first request is made.
//
// Debian's libcurl brings 33 libraries and 6 ms to every start of a program that links it. Only
// Clusters and buckets need HTTP, so the library is opened at run time and its functions are
// called through this table; types and constants come from its header.
#pragma once

#include <curl/curl.h>

namespace dtrain {

struct CurlLibrary {
  decltype(&::curl_easy_init) easy_init;
  decltype(&::curl_easy_cleanup) easy_cleanup;
  decltype(&::curl_easy_setopt) easy_setopt;
  decltype(&::curl_easy_getinfo) easy_getinfo;
  decltype(&::curl_easy_perform) easy_perform;
  decltype(&::curl_easy_send) easy_send;
  decltype(&::curl_easy_recv) easy_recv;
  decltype(&::curl_easy_pause) easy_pause;
  decltype(&::curl_easy_strerror) easy_strerror;
  decltype(&::curl_multi_init) multi_init;
  decltype(&::curl_multi_cleanup) multi_cleanup;
  decltype(&::curl_multi_setopt) multi_setopt;
  decltype(&::curl_multi_add_handle) multi_add_handle;
  decltype(&::curl_multi_remove_handle) multi_remove_handle;
  decltype(&::curl_multi_perform) multi_perform;
  decltype(&::curl_multi_poll) multi_poll;
  decltype(&::curl_multi_info_read) multi_info_read;
  decltype(&::curl_multi_strerror) multi_strerror;
  decltype(&::curl_slist_append) slist_append;
  decltype(&::curl_slist_free_all) slist_free_all;
};

/// The library, opened by the first call and kept for the life of the program.
/// Throws EngineError where it is not installed.
const CurlLibrary& curl_library();

} // namespace dtrain
