#include "backends/kubernetes/api/credentials.h"

#include "backends/job_status.h"
#include "backends/support/os/subprocess.h"
#include "submit/errors.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <fstream>
#include <iterator>
#include <optional>

namespace dtrain::kubernetes {
namespace {

using nlohmann::json;

/// Output of the plug-in. Its stderr is ours: it may have something to say to the user.
std::string output_of(const ExecPlugin& plugin, const std::string& info) {
  Command command = {.argv = {plugin.command}, .env = plugin.env, .shows_errors = true};
  command.argv.insert(command.argv.end(), plugin.args.begin(), plugin.args.end());
  command.env.emplace_back("KUBERNETES_EXEC_INFO", info);
  CommandResult result;
  try {
    result = run_command(command);
  } catch (const EngineError& error) {
    throw EngineError(fmt::format("credential plug-in {}{}{}", error.what(),
                                  plugin.install_hint.empty() ? "" : "; ",
                                  printable(plugin.install_hint)));
  }
  if (!result.ending.good()) {
    const int signal = result.ending.signal;
    throw EngineError(fmt::format(
        "credential plug-in {} ended with {}", printable(plugin.command),
        ending_text(result.ending.exit_code, signal == 0 ? std::nullopt : std::optional(signal))));
  }
  return result.out;
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
