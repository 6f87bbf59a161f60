// The cluster and the user's credentials, found as kubectl does.
//
// Sources, first that applies: `--kubeconfig FILE`; the files of KUBECONFIG (a list with colons,
// merged: the first file to name a cluster, user, context or current-context wins, missing files
// are skipped); ~/.kube/config; inside a Pod, its service account. Relative paths in a file are
// relative to that file.
#pragma once

#include "backends/kubernetes/api/http_client.h"

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace dtrain::kubernetes {

/// A credential plug-in: a program that prints an ExecCredential.
struct ExecPlugin {
  std::string api_version; ///< client.authentication.k8s.io/v1 or v1beta1
  std::string command;     ///< A path relative to the kubeconfig is made absolute.
  std::vector<std::string> args;
  std::vector<std::pair<std::string, std::string>> env;
  std::string install_hint;
  bool provide_cluster_info = false;
  std::string cluster_extension_json; ///< The cluster's client.authentication.k8s.io/exec.
};

/// A context, resolved: everything that a client needs.
struct ClusterAccess {
  HttpServer server;
  std::string namespace_name = "default";
  std::string bearer_token; ///< Fixed for the life of the program.
  std::string token_file;   ///< Read again when it changes; wins over bearer_token.
  std::optional<ExecPlugin> exec;
  std::string impersonate_user;
  std::string origin; ///< For messages: `context "x" of /root/.kube/config`.
};

struct KubeconfigQuery {
  std::string file;    ///< --kubeconfig; empty: as the environment says.
  std::string context; ///< --context; empty: current-context.
};

using GetEnv = std::function<std::optional<std::string>(const char*)>;
using ReadFile = std::function<std::optional<std::string>(const std::string&)>;

/// Throws UsageError naming file and line for a malformed file, the contexts that there are for
/// an unknown one, and EngineError saying where was looked when there is no configuration at all.
ClusterAccess find_cluster(const KubeconfigQuery& query, const GetEnv& get_env,
                           const ReadFile& read_file);
ClusterAccess find_cluster(const KubeconfigQuery& query);

/// The namespace that the context names, or "default", also where nothing is configured: a plan can
/// be made without a cluster. Throws UsageError as find_cluster() does.
std::string context_namespace(const KubeconfigQuery& query);

/// The contexts' names, for completion; those of files that can be read.
std::vector<std::string> context_names(const KubeconfigQuery& query);

} // namespace dtrain::kubernetes
