// What other processes of the user's ask a job's hosts, like `top job`: over the connections that
// the job's supervisor has open, so that no host has another one for it.
//
// It listens at a socket in the job's folder, which is the user's alone. A client sends one request
// and its end, as JSON, and is sent the hosts' answers:
//
//   {"hosts": ["h1"], "script": "begin() { ...; }"}      [{"text": "...", "failure": ""}]
#pragma once

#include "backends/ssh/connections.h"
#include "backends/ssh/fan_out.h"
#include "backends/support/os/fd.h"

#include <list>
#include <optional>
#include <string>
#include <vector>

namespace dtrain::ssh {

class RequestServer {
 public:
  /// Works without a socket if there can be none: clients then use ssh.
  RequestServer(Connections& connections, int job_folder);
  ~RequestServer() { close(); }
  RequestServer(const RequestServer&) = delete;
  RequestServer& operator=(const RequestServer&) = delete;

  /// Call after Connections::advance(): accepts, asks and answers what it can without blocking.
  void advance();

  /// Before another supervisor may listen there.
  void close();

 private:
  struct Client {
    Fd socket;
    std::string request = {};
    std::vector<RankId> asked = {};
    std::string answer = {}; ///< The rest of the answer.
    enum class State { asks, waits, hears, gone } state = State::asks;
  };

  void read_request(Client& client);
  void ask(Client& client);
  void answer(Client& client);

  Connections& connections_;
  int folder_;
  Fd listener_;
  std::list<Client> clients_;
};

/// The answers to `script`, which defines begin(), in the order of the hosts; nothing where the job
/// has no supervisor on this machine.
std::optional<std::vector<HostAnswer>>
ask_supervisor(int job_folder, const std::vector<std::string>& hosts, const std::string& script);

} // namespace dtrain::ssh
