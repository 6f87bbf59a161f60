// The token that goes with every request, from whichever source the kubeconfig names.
#pragma once

#include "backends/kubernetes/api/kubeconfig.h"

#include <string>

namespace dtrain::kubernetes {

/// The output of a credential plug-in.
struct ExecCredential {
  std::string token;
  std::string client_cert_pem;
  std::string client_key_pem;
};

/// KUBERNETES_EXEC_INFO: the input of a plug-in.
std::string exec_info(const ExecPlugin& plugin, const HttpServer& server);

/// Runs the plug-in; its stderr is ours. Throws EngineError naming the command, how it ended and
/// the kubeconfig's install hint.
ExecCredential run_exec_plugin(const ExecPlugin& plugin, const HttpServer& server);

/// Parses an ExecCredential. Throws EngineError naming `command`.
ExecCredential parse_exec_credential(const std::string& json, const std::string& command);

class Credentials {
 public:
  explicit Credentials(const ClusterAccess& access) : access_(access) {}

  /// The current token; empty where the client certificate speaks for us. The plug-in runs at the
  /// first call, and at the first after expire(). `client` is given the plug-in's certificate.
  std::string token(HttpClient& client);

  /// The server said 401: forget what can be renewed. False where nothing can.
  bool expire();

 private:
  const ClusterAccess& access_;
  std::optional<ExecCredential> exec_;
};

} // namespace dtrain::kubernetes
