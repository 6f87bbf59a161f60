// What a repository's address says of who asks.
#pragma once

#include <string_view>

namespace dtrain {

/// True for SCHEME://USER:PASSWORD@HOST/…
inline bool holds_password(std::string_view url) {
  const auto scheme = url.find("://");
  if (scheme == std::string_view::npos) {
    return false;
  }
  const auto host = url.substr(scheme + 3, url.find('/', scheme + 3) - scheme - 3);
  return host.find('@') != std::string_view::npos && host.find(':') < host.find('@');
}

} // namespace dtrain
