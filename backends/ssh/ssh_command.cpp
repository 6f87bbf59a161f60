#include "backends/ssh/ssh_command.h"

#include "backends/support/os/subprocess.h"
#include "submit/errors.h"

#include <fmt/format.h>

#include <initializer_list>

namespace dtrain::ssh {

namespace {

std::vector<std::string> command_with(std::initializer_list<const char*> more) {
  std::vector<std::string> words{"ssh", "-T"};
  const auto add = [&](const char* option) {
    words.emplace_back("-o");
    words.emplace_back(option);
  };
  for (const char* option :
       {"BatchMode=yes", "ConnectTimeout=8", "LogLevel=INFO", "RemoteCommand=none", "ForwardX11=no",
        "ForwardAgent=no", "ClearAllForwardings=yes", "ControlMaster=no", "ControlPath=none"}) {
    add(option);
  }
  for (const char* option : more) {
    add(option);
  }
  return words;
}

} // namespace

std::vector<std::string> ssh_command(const std::string& host, const std::string& command) {
  auto words = command_with({"ServerAliveInterval=15", "ServerAliveCountMax=4"});
  words.insert(words.end(), {"--", host, command});
  return words;
}

std::vector<std::string> ssh_connection_command(const std::string& host, const std::string& log,
                                                const std::string& command) {
  auto words = command_with({"ServerAliveInterval=0"});
  words.insert(words.end(), {"-E", log, "--", host, command});
  return words;
}

std::string explain_loss(const std::string& host, std::string_view said) {
  const auto says = [&](std::string_view words) { return said.find(words) != said.npos; };
  if (says("IDENTIFICATION HAS CHANGED")) {
    return fmt::format("its host key has changed, which may be an attack; if the host was "
                       "reinstalled: ssh-keygen -R {}",
                       host);
  }
  if (says("Host key verification failed")) {
    return fmt::format("its host key is unknown here: run ssh {} once and check the key", host);
  }
  auto line = last_line(said);
  if (says("Permission denied")) {
    return line + ": it accepts none of your keys (ssh-copy-id, ssh-add)";
  }
  return line;
}

} // namespace dtrain::ssh
