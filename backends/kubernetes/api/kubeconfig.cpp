#include "backends/kubernetes/api/kubeconfig.h"

#include "backends/kubernetes/objects/yaml_json.h"
#include "submit/errors.h"
#include "submit/text/base64.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <yaml-cpp/yaml.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

namespace dtrain::kubernetes {
namespace {

constexpr const char* k_account = "/var/run/secrets/kubernetes.io/serviceaccount/";
constexpr const char* k_exec_extension = "client.authentication.k8s.io/exec";

/// A mapping of the file, with the place to name when something in it is wrong.
struct Section {
  std::string file;
  YAML::Node node;

  [[noreturn]] void fail(const YAML::Node& where, const std::string& what) const {
    throw UsageError(fmt::format("{}:{}: {}", file, where.Mark().line + 1, what));
  }

  bool has(const char* key) const {
    if (!node.IsMap()) {
      fail(node, fmt::format("must be a mapping with {}", key));
    }
    YAML::Node value = node[key];
    return value.IsDefined() && !value.IsNull();
  }

  std::string text(const char* key) const {
    return has(key) ? text_of(node[key], fmt::format("{} must be a string", key)) : std::string();
  }

  std::string text_of(const YAML::Node& value, const std::string& otherwise) const {
    if (!value.IsScalar()) {
      fail(value, otherwise);
    }
    return value.Scalar();
  }

  std::vector<YAML::Node> list(const char* key) const {
    if (!has(key)) {
      return {};
    }
    if (!node[key].IsSequence()) {
      fail(node[key], fmt::format("{} must be a list", key));
    }
    return {node[key].begin(), node[key].end()};
  }

  bool flag(const char* key) const {
    std::string value = text(key);
    if (!value.empty() && value != "true" && value != "false") {
      fail(node[key], fmt::format("{} must be true or false, not {}", key, printable(value)));
    }
    return value == "true";
  }

  /// A path as this file means it.
  std::string path(const std::string& value) const {
    if (value.empty() || value.starts_with('/')) {
      return value;
    }
    std::size_t slash = file.rfind('/');
    return slash == std::string::npos ? value : file.substr(0, slash + 1) + value;
  }

  std::string decoded(const char* key) const {
    std::optional<std::string> bytes = base64_decode(text(key));
    if (!bytes) {
      fail(node[key], fmt::format("{} is not base64", key));
    }
    return *bytes;
  }
};

/// The files of a query, merged: the first to name something wins.
struct Kubeconfig {
  std::vector<std::string> files; ///< Files that were read.
  std::map<std::string, Section> clusters, users, contexts;
  std::vector<std::string> context_order;
  std::string current_context;
};

Section parse(const std::string& file, const std::string& text) {
  try {
    Section root{file, YAML::Load(text)};
    if (!root.node.IsNull() && !root.node.IsMap()) {
      root.fail(root.node,
                "not a kubeconfig: it must be a mapping with clusters, users and contexts");
    }
    return root;
  } catch (const YAML::Exception& error) {
    throw UsageError(
        fmt::format("{}:{}: not YAML: {}", file, error.mark.line + 1, printable(error.msg)));
  }
}

void merge(const Section& root, const char* list, const char* item,
           std::map<std::string, Section>& into, std::vector<std::string>* order = nullptr) {
  for (const YAML::Node& entry : root.list(list)) {
    Section named{root.file, entry};
    if (!entry.IsMap() || !named.has("name")) {
      root.fail(entry, fmt::format("an entry of {} has no name", list));
    }
    YAML::Node content = entry[item];
    if (content.IsDefined() && !content.IsNull() && !content.IsMap()) {
      root.fail(content, fmt::format("{} must be a mapping", item));
    }
    bool is_new =
        into.emplace(named.text("name"), Section{root.file, content.IsDefined() && content.IsMap()
                                                                ? content
                                                                : YAML::Node(YAML::NodeType::Map)})
            .second;
    if (is_new && order != nullptr) {
      order->push_back(named.text("name"));
    }
  }
}

std::vector<std::string> files_of(const KubeconfigQuery& query, const GetEnv& get_env) {
  if (!query.file.empty()) {
    return {query.file};
  }
  std::vector<std::string> files;
  std::string list = get_env("KUBECONFIG").value_or("");
  for (std::size_t at = 0; at < list.size();) {
    std::size_t colon = std::min(list.find(':', at), list.size());
    if (colon > at) {
      files.push_back(list.substr(at, colon - at));
    }
    at = colon + 1;
  }
  if (files.empty()) {
    if (std::optional<std::string> home = get_env("HOME")) {
      files.push_back(*home + "/.kube/config");
    }
  }
  return files;
}

Kubeconfig read_files(const KubeconfigQuery& query, const GetEnv& get_env,
                      const ReadFile& read_file) {
  Kubeconfig config;
  for (const std::string& file : files_of(query, get_env)) {
    std::optional<std::string> text = read_file(file);
    if (!text) {
      if (!query.file.empty()) {
        throw UsageError(fmt::format("--kubeconfig={}: no such file, or not readable", file));
      }
      continue;
    }
    Section root = parse(file, *text);
    config.files.push_back(file);
    if (root.node.IsNull()) {
      continue;
    }
    merge(root, "clusters", "cluster", config.clusters);
    merge(root, "users", "user", config.users);
    merge(root, "contexts", "context", config.contexts, &config.context_order);
    if (config.current_context.empty()) {
      config.current_context = root.text("current-context");
    }
  }
  return config;
}

/// PEM given inline (base64) or by file; inline wins, as in kubectl.
std::string pem(const Section& section, const char* file_key, const std::string& data_key,
                const ReadFile& read_file) {
  if (section.has(data_key.c_str())) {
    return section.decoded(data_key.c_str());
  }
  std::string path = section.path(section.text(file_key));
  if (path.empty()) {
    return {};
  }
  std::optional<std::string> text = read_file(path);
  if (!text) {
    section.fail(section.node[file_key],
                 fmt::format("{}: {} cannot be read", file_key, printable(path)));
  }
  return *text;
}

void read_cluster(const Section& cluster, const ReadFile& read_file, ClusterAccess& access) {
  HttpServer& server = access.server;
  server.url = cluster.text("server");
  while (server.url.ends_with('/')) {
    server.url.pop_back();
  }
  if (server.url.empty()) {
    cluster.fail(cluster.node, "the cluster has no server");
  }
  if (server.url.find("://") == std::string::npos) {
    server.url = "https://" + server.url;
  }
  if (!server.url.starts_with("https://") && !server.url.starts_with("http://")) {
    cluster.fail(cluster.node["server"],
                 fmt::format("server must be an https:// address, not {}", printable(server.url)));
  }
  server.tls_server_name = cluster.text("tls-server-name");
  server.insecure = cluster.flag("insecure-skip-tls-verify");
  server.proxy = cluster.text("proxy-url");
  server.ca_pem = pem(cluster, "certificate-authority", "certificate-authority-data", read_file);
  if (server.insecure && !server.ca_pem.empty()) {
    cluster.fail(cluster.node["insecure-skip-tls-verify"],
                 "insecure-skip-tls-verify and certificate-authority exclude each other");
  }
}

ExecPlugin read_exec(const Section& exec) {
  ExecPlugin plugin;
  plugin.api_version = exec.text("apiVersion");
  if (plugin.api_version != "client.authentication.k8s.io/v1" &&
      plugin.api_version != "client.authentication.k8s.io/v1beta1") {
    exec.fail(exec.node, fmt::format("exec: apiVersion must be client.authentication.k8s.io/v1 or "
                                     "/v1beta1, not \"{}\"",
                                     printable(plugin.api_version)));
  }
  plugin.command = exec.text("command");
  if (plugin.command.empty()) {
    exec.fail(exec.node, "exec: command is missing");
  }
  if (plugin.command.find('/') != std::string::npos) {
    plugin.command = exec.path(plugin.command);
  }
  for (const YAML::Node& arg : exec.list("args")) {
    plugin.args.push_back(exec.text_of(arg, "an entry of args must be a string"));
  }
  for (const YAML::Node& variable : exec.list("env")) {
    Section pair{exec.file, variable};
    std::string name = pair.text("name");
    plugin.env.emplace_back(std::move(name), pair.text("value"));
  }
  plugin.install_hint = exec.text("installHint");
  plugin.provide_cluster_info = exec.flag("provideClusterInfo");
  return plugin;
}

/// The data for exec plug-ins in the cluster's entry, as JSON; empty if there is none.
std::string exec_extension(const Section& cluster) {
  for (const YAML::Node& entry : cluster.list("extensions")) {
    Section extension{cluster.file, entry};
    if (extension.text("name") == k_exec_extension && extension.has("extension")) {
      try {
        return yaml_to_json(entry["extension"])
            .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
      } catch (const YAML::Exception& error) {
        extension.fail(entry["extension"], error.msg);
      }
    }
  }
  return {};
}

void read_user(const Section& user, const ReadFile& read_file, ClusterAccess& access) {
  HttpServer& server = access.server;
  server.client_cert_pem = pem(user, "client-certificate", "client-certificate-data", read_file);
  server.client_key_pem = pem(user, "client-key", "client-key-data", read_file);
  if (server.client_cert_pem.empty() != server.client_key_pem.empty()) {
    user.fail(user.node, "client-certificate and client-key belong together: one is missing");
  }
  access.bearer_token = user.text("token");
  access.token_file = user.path(user.text("tokenFile"));
  server.username = user.text("username");
  server.password = user.text("password");
  access.impersonate_user = user.text("as");
  if (user.has("exec")) {
    access.exec = read_exec({user.file, user.node["exec"]});
  } else if (user.has("auth-provider")) {
    user.fail(user.node["auth-provider"],
              "auth-provider was removed from Kubernetes in 1.26: use the provider's exec plug-in");
  }
}

std::optional<ClusterAccess> service_account(const GetEnv& get_env, const ReadFile& read_file) {
  std::optional<std::string> host = get_env("KUBERNETES_SERVICE_HOST");
  std::optional<std::string> port = get_env("KUBERNETES_SERVICE_PORT");
  std::string token_file = std::string(k_account) + "token";
  if (!host || !port || !read_file(token_file)) {
    return std::nullopt;
  }
  ClusterAccess access;
  bool is_v6 = host->find(':') != std::string::npos;
  access.server.url = fmt::format("https://{}:{}", is_v6 ? "[" + *host + "]" : *host, *port);
  access.server.ca_pem = read_file(std::string(k_account) + "ca.crt").value_or("");
  access.token_file = token_file;
  access.namespace_name = read_file(std::string(k_account) + "namespace").value_or("default");
  access.origin = "this Pod's service account";
  return access;
}

std::optional<std::string> env_of_process(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

std::optional<std::string> file_on_disk(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return std::nullopt;
  }
  std::string text{std::istreambuf_iterator<char>(file), {}};
  return file.bad() ? std::nullopt : std::optional<std::string>(std::move(text));
}

} // namespace

ClusterAccess find_cluster(const KubeconfigQuery& query, const GetEnv& get_env,
                           const ReadFile& read_file) {
  Kubeconfig config = read_files(query, get_env, read_file);
  std::string context = query.context.empty() ? config.current_context : query.context;
  std::string files = fmt::format("{}", fmt::join(config.files, ":"));
  std::string contexts = fmt::format("{}", fmt::join(config.context_order, ", "));
  if (context.empty()) {
    if (std::optional<ClusterAccess> access = service_account(get_env, read_file)) {
      return *access;
    }
    if (config.files.empty()) {
      throw EngineError(
          fmt::format("no Kubernetes cluster is configured: there is no {}; set KUBECONFIG or "
                      "--kubeconfig",
                      fmt::join(files_of(query, get_env), ":")));
    }
    throw UsageError(fmt::format("{}: no current-context is set; choose one with --context ({})",
                                 files, printable(contexts)));
  }
  auto found = config.contexts.find(context);
  if (found == config.contexts.end()) {
    throw UsageError(fmt::format("context \"{}\" is not in {}; {}", printable(context),
                                 files.empty() ? "any kubeconfig (none was found)" : files,
                                 config.context_order.empty()
                                     ? "it has no contexts"
                                     : fmt::format("there are: {}", printable(contexts))));
  }
  const Section& chosen = found->second;
  ClusterAccess access;
  access.origin = fmt::format("context \"{}\" of {}", printable(context), chosen.file);
  std::string namespace_name = chosen.text("namespace");
  if (!namespace_name.empty()) {
    access.namespace_name = namespace_name;
  }
  auto cluster = config.clusters.find(chosen.text("cluster"));
  if (cluster == config.clusters.end()) {
    chosen.fail(chosen.node, fmt::format("context \"{}\" names the cluster \"{}\", which no file "
                                         "describes",
                                         printable(context), printable(chosen.text("cluster"))));
  }
  read_cluster(cluster->second, read_file, access);
  if (chosen.has("user")) {
    auto user = config.users.find(chosen.text("user"));
    if (user == config.users.end()) {
      chosen.fail(chosen.node, fmt::format("context \"{}\" names the user \"{}\", which no file "
                                           "describes",
                                           printable(context), printable(chosen.text("user"))));
    }
    read_user(user->second, read_file, access);
  }
  if (access.exec && access.exec->provide_cluster_info) {
    access.exec->cluster_extension_json = exec_extension(cluster->second);
  }
  return access;
}

ClusterAccess find_cluster(const KubeconfigQuery& query) {
  return find_cluster(query, env_of_process, file_on_disk);
}

std::string context_namespace(const KubeconfigQuery& query) {
  try {
    return find_cluster(query).namespace_name;
  } catch (const EngineError&) {
    return ClusterAccess().namespace_name;
  }
}

std::vector<std::string> context_names(const KubeconfigQuery& query) {
  return read_files(query, env_of_process, file_on_disk).context_order;
}

} // namespace dtrain::kubernetes
