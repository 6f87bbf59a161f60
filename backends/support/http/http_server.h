// How to reach and trust a server, with which credentials, and the meaning of its status codes.
#pragma once

#include <string>

namespace dtrain {

/// The status codes that something depends on.
inline constexpr long k_switching_protocols = 101;
inline constexpr long k_ok = 200;
inline constexpr long k_unauthorized = 401;
inline constexpr long k_forbidden = 403;
inline constexpr long k_not_found = 404;
inline constexpr long k_conflict = 409;
inline constexpr long k_gone = 410;
inline constexpr long k_precondition_failed = 412;
inline constexpr long k_unavailable = 503;

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

} // namespace dtrain
