// How to reach and trust the server, and who we are.
#pragma once

#include <string>

namespace dtrain::kubernetes {

/// PEM texts, not files.
struct HttpServer {
  std::string url;             ///< "https://10.0.0.1:6443", no trailing slash.
  std::string tls_server_name; ///< Name to verify instead of the URL's host; empty: the host.
  std::string ca_pem;          ///< Trusted roots; empty: the system's.
  bool insecure = false;       ///< No verification of the server.
  std::string client_cert_pem;
  std::string client_key_pem;
  std::string proxy;    ///< Empty: as the environment says (https_proxy, no_proxy).
  std::string username; ///< Basic authentication; empty: none.
  std::string password;
};

} // namespace dtrain::kubernetes
