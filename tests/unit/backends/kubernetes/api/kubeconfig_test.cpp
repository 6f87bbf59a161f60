#include "backends/kubernetes/api/credentials.h"
#include "backends/kubernetes/api/kubeconfig.h"
#include "submit/errors.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <map>

using namespace dtrain;
using namespace dtrain::kubernetes;

namespace {

/// A machine with these variables and files, and nothing else.
struct Machine {
  std::map<std::string, std::string> env;
  std::map<std::string, std::string> files;

  ClusterAccess find(const KubeconfigQuery& query = {}) const {
    auto lookup = [](const std::map<std::string, std::string>& map, const std::string& key) {
      auto found = map.find(key);
      return found == map.end() ? std::nullopt : std::optional(found->second);
    };
    return find_cluster(
        query, [&](const char* name) { return lookup(env, name); },
        [&](const std::string& path) { return lookup(files, path); });
  }

  std::string error(const KubeconfigQuery& query = {}) const {
    try {
      find(query);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }
};

const std::string k_config = R"(apiVersion: v1
kind: Config
clusters:
- name: east
  cluster: {server: "https://east:6443/", certificate-authority: pki/ca.crt, tls-server-name: api,
            proxy-url: "http://proxy:3128"}
- name: west
  cluster: {server: "https://west", insecure-skip-tls-verify: true}
users:
- name: me
  user: {client-certificate-data: Q0VSVA==, client-key-data: S0VZ}
- name: token
  user: {tokenFile: token}
contexts:
- name: e
  context: {cluster: east, user: me, namespace: team}
- name: w
  context: {cluster: west, user: token}
current-context: e
)";

} // namespace

TEST_CASE("the current context gives server, namespace, certificates and proxy") {
  Machine machine{{{"HOME", "/home/u"}},
                  {{"/home/u/.kube/config", k_config}, {"/home/u/.kube/pki/ca.crt", "CA"}}};
  ClusterAccess access = machine.find();
  CHECK(access.server.url == "https://east:6443");
  CHECK(access.server.ca_pem == "CA");
  CHECK(access.server.tls_server_name == "api");
  CHECK(access.server.proxy == "http://proxy:3128");
  CHECK(access.server.client_cert_pem == "CERT");
  CHECK(access.server.client_key_pem == "KEY");
  CHECK(access.namespace_name == "team");
  CHECK(access.origin == "context \"e\" of /home/u/.kube/config");
}

TEST_CASE("--context chooses another, and a token file is relative to its kubeconfig") {
  Machine machine{{}, {{"/etc/k", k_config}}};
  ClusterAccess access = machine.find({"/etc/k", "w"});
  CHECK(access.server.insecure);
  CHECK(access.token_file == "/etc/token");
  CHECK(access.namespace_name == "default");
}

TEST_CASE("of several files the first to name something wins, and absent files are skipped") {
  Machine machine{{{"KUBECONFIG", "/none:/a::/b"}},
                  {{"/a", "clusters: [{name: west, cluster: {server: \"https://mine\"}}]\n"
                          "current-context: w\n"},
                   {"/b", k_config}}};
  ClusterAccess access = machine.find();
  CHECK(access.server.url == "https://mine");
  CHECK(access.token_file == "/token");
}

TEST_CASE("a malformed kubeconfig is refused with file and line") {
  Machine machine{{}, {{"/k", "clusters:\n- name: a\n  cluster: {server: [}\n"}}};
  CHECK(machine.error({"/k", ""}).starts_with("/k:3: not YAML"));
  machine.files["/k"] = "clusters:\n- name: a\n  cluster:\n    server: [x]\ncontexts:\n- name: c\n"
                        "  context: {cluster: a}\ncurrent-context: c\n";
  CHECK(machine.error({"/k", ""}) == "/k:4: server must be a string");
  machine.files["/k"] = "clusters: [{cluster: {}}]";
  CHECK(machine.error({"/k", ""}) == "/k:1: an entry of clusters has no name");
  machine.files["/k"] = "contexts: [{name: \"a\\nb\"}]";
  CHECK(machine.error({"/k", "c"}) == "context \"c\" is not in /k; there are: a\\nb");
}

TEST_CASE("an exec plug-in's entry of the wrong form is refused with file and line") {
  const auto refused = [](const std::string& exec, const std::string& extension) {
    Machine machine{{},
                    {{"/k", "contexts: [{name: c, context: {cluster: a, user: u}}]\n"
                            "users: [{name: u, user: {exec: {command: login, apiVersion: "
                            "client.authentication.k8s.io/v1, " +
                                exec +
                                "}}}]\n"
                                "clusters: [{name: a, cluster: {server: b, extensions: [\n" +
                                extension + "]}}]\n"}}};
    return machine.error({"/k", "c"});
  };
  const std::string ours = "{name: client.authentication.k8s.io/exec, ";
  CHECK(refused("args: -v", "") == "/k:2: args must be a list");
  CHECK(refused("args: [[-v]]", "") == "/k:2: an entry of args must be a string");
  CHECK(refused("env: [A=b]", "") == "/k:2: must be a mapping with name");
  CHECK(refused("provideClusterInfo: true", "a") == "/k:4: must be a mapping with name");
  CHECK(refused("provideClusterInfo: true", ours + "extension: &x [*x]}") ==
        "/k:4: its aliases make it too large");
  std::string bomb = "extension: [&l0 [1]";
  for (int level = 1; level < 20; ++level) {
    bomb += fmt::format(", &l{} [*l{}, *l{}, *l{}]", level, level - 1, level - 1, level - 1);
  }
  CHECK(refused("provideClusterInfo: true", ours + bomb + "]}") ==
        "/k:4: its aliases make it too large");
  CHECK(refused("provideClusterInfo: true", ours + "other: 1}") == "no error");
}

TEST_CASE("a wrong context is refused with those that there are") {
  Machine machine{{}, {{"/k", k_config}}};
  CHECK(machine.error({"/k", "x"}) == "context \"x\" is not in /k; there are: e, w");
}

TEST_CASE("no cluster at all says where was looked") {
  Machine machine{{{"HOME", "/h"}}, {}};
  CHECK_THROWS_AS(machine.find(), EngineError);
  CHECK(machine.error().find("/h/.kube/config") != std::string::npos);
}

TEST_CASE("inside a Pod the service account is used") {
  const std::string folder = "/var/run/secrets/kubernetes.io/serviceaccount/";
  Machine machine{
      {{"KUBERNETES_SERVICE_HOST", "fd00::1"}, {"KUBERNETES_SERVICE_PORT", "443"}},
      {{folder + "token", "t"}, {folder + "ca.crt", "CA"}, {folder + "namespace", "n"}}};
  ClusterAccess access = machine.find();
  CHECK(access.server.url == "https://[fd00::1]:443");
  CHECK(access.token_file == folder + "token");
  CHECK(access.namespace_name == "n");
}

TEST_CASE("an exec plug-in's token is read, and its failure names it and the install hint") {
  ExecPlugin plugin;
  plugin.api_version = "client.authentication.k8s.io/v1";
  plugin.command = "sh";
  plugin.args = {"-c", "echo '{\"kind\":\"ExecCredential\",\"status\":{\"token\":\"'$WHO'\"}}'"};
  plugin.env = {{"WHO", "me"}};
  CHECK(run_exec_plugin(plugin, {}).token == "me");
  plugin.args = {"-c", "exit 7"};
  CHECK_THROWS_WITH(run_exec_plugin(plugin, {}), "credential plug-in sh ended with exit code 7");
  plugin.command = "no-such-plug-in";
  plugin.install_hint = "get it from example.org";
  CHECK_THROWS_WITH(run_exec_plugin(plugin, {}),
                    "credential plug-in no-such-plug-in cannot be run: No such file or directory; "
                    "get it from example.org");
}
