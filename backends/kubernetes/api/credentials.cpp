#include "backends/kubernetes/api/credentials.h"

#include "backends/support/os/argv.h"
#include "submit/errors.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <iterator>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

namespace dtrain::kubernetes {
namespace {

using nlohmann::json;

std::string read_all(int fd) {
  std::string text;
  std::array<char, 4096> buffer{};
  for (;;) {
    ssize_t count = read(fd, buffer.data(), buffer.size());
    if (count > 0) {
      text.append(buffer.data(), static_cast<std::size_t>(count));
    } else if (count == 0 || errno != EINTR) {
      return text;
    }
  }
}

/// Our environment with the plug-in's variables in place of those of the same name.
std::vector<std::string> environment(const ExecPlugin& plugin, const std::string& info) {
  std::vector<std::string> env;
  auto extra = plugin.env;
  extra.emplace_back("KUBERNETES_EXEC_INFO", info);
  for (char** entry = environ; *entry != nullptr; ++entry) {
    std::string_view variable = *entry;
    std::string_view name = variable.substr(0, variable.find('='));
    bool replaced = false;
    for (const auto& [key, value] : extra) {
      replaced = replaced || key == name;
    }
    if (!replaced) {
      env.emplace_back(variable);
    }
  }
  for (const auto& [key, value] : extra) {
    env.push_back(fmt::format("{}={}", key, value));
  }
  return env;
}

/// Runs `argv` and returns its standard output.
std::string output_of(const ExecPlugin& plugin, const std::string& info) {
  std::vector<std::string> argv = {plugin.command};
  argv.insert(argv.end(), plugin.args.begin(), plugin.args.end());
  std::vector<std::string> env = environment(plugin, info);
  std::array<int, 2> pipe_fds{};
  if (pipe2(pipe_fds.data(), O_CLOEXEC) != 0) {
    throw EngineError(fmt::format("{}: cannot make a pipe: {}", plugin.command, strerror(errno)));
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, pipe_fds[1], STDOUT_FILENO);
  pid_t pid = 0;
  int failed = posix_spawnp(&pid, plugin.command.c_str(), &actions, nullptr, argv_of(argv).data(),
                            argv_of(env).data());
  posix_spawn_file_actions_destroy(&actions);
  close(pipe_fds[1]);
  if (failed != 0) {
    close(pipe_fds[0]);
    throw EngineError(fmt::format(
        "credential plug-in {} cannot be run: {}{}{}", printable(plugin.command), strerror(failed),
        plugin.install_hint.empty() ? "" : "; ", printable(plugin.install_hint)));
  }
  std::string text = read_all(pipe_fds[0]);
  close(pipe_fds[0]);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    throw EngineError(WIFEXITED(status)
                          ? fmt::format("credential plug-in {} failed with exit code {}",
                                        printable(plugin.command), WEXITSTATUS(status))
                          : fmt::format("credential plug-in {} was ended by signal {}",
                                        printable(plugin.command), WTERMSIG(status)));
  }
  return text;
}

} // namespace

std::string exec_info(const ExecPlugin& plugin, const HttpServer& server) {
  json spec = {{"interactive", false}};
  if (plugin.provide_cluster_info) {
    json cluster = {{"server", server.url}};
    if (!server.tls_server_name.empty()) {
      cluster["tls-server-name"] = server.tls_server_name;
    }
    if (server.insecure) {
      cluster["insecure-skip-tls-verify"] = true;
    }
    if (!server.proxy.empty()) {
      cluster["proxy-url"] = server.proxy;
    }
    if (!plugin.cluster_extension_json.empty()) {
      cluster["config"] = json::parse(plugin.cluster_extension_json);
    }
    spec["cluster"] = cluster;
  }
  return json{{"apiVersion", plugin.api_version}, {"kind", "ExecCredential"}, {"spec", spec}}
      .dump();
}

ExecCredential parse_exec_credential(const std::string& text, const std::string& command) {
  json credential = json::parse(text, nullptr, false);
  if (!credential.is_object() || credential.value("kind", "") != "ExecCredential" ||
      !credential.contains("status")) {
    throw EngineError(fmt::format("credential plug-in {} printed no ExecCredential with a status",
                                  printable(command)));
  }
  const json& status = credential["status"];
  ExecCredential result{status.value("token", ""), status.value("clientCertificateData", ""),
                        status.value("clientKeyData", "")};
  if (result.token.empty() && result.client_cert_pem.empty()) {
    throw EngineError(fmt::format(
        "credential plug-in {} gave neither a token nor a client certificate", printable(command)));
  }
  return result;
}

ExecCredential run_exec_plugin(const ExecPlugin& plugin, const HttpServer& server) {
  return parse_exec_credential(output_of(plugin, exec_info(plugin, server)), plugin.command);
}

std::string Credentials::token(HttpClient& client) {
  if (!access_.token_file.empty()) {
    std::ifstream file(access_.token_file, std::ios::binary);
    std::string token{std::istreambuf_iterator<char>(file), {}};
    while (!token.empty() && (token.back() == '\n' || token.back() == '\r')) {
      token.pop_back();
    }
    if (!file || token.empty()) {
      throw EngineError(fmt::format("{}: the token file {} cannot be read, or is empty",
                                    access_.origin, printable(access_.token_file)));
    }
    return token;
  }
  if (!access_.bearer_token.empty() || !access_.exec) {
    return access_.bearer_token;
  }
  if (!exec_) {
    exec_ = run_exec_plugin(*access_.exec, access_.server);
    if (!exec_->client_cert_pem.empty()) {
      client.replace_client_certificate(exec_->client_cert_pem, exec_->client_key_pem);
    }
  }
  return exec_->token;
}

bool Credentials::expire() {
  bool can_renew = exec_.has_value() || !access_.token_file.empty();
  exec_.reset();
  return can_renew;
}

} // namespace dtrain::kubernetes
