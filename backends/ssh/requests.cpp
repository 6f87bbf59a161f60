#include "backends/ssh/requests.h"

#include "backends/support/os/files.h"
#include "submit/errors.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <sstream>
#include <string_view>
#include <utility>

namespace dtrain::ssh {

namespace {

constexpr const char* k_socket = "requests";
constexpr std::size_t k_longest_request = std::size_t{1} << 20U;
constexpr std::size_t k_most_clients = 16;
constexpr timeval k_answer_limit{30, 0};

/// Wherever the folder is, and however long its path: a socket's may have 107 bytes.
sockaddr_un address_in(int folder) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const auto path = fmt::format("/proc/self/fd/{}/{}", folder, k_socket);
  path.copy(&address.sun_path[0], sizeof(address.sun_path) - 1);
  return address;
}

std::string json_text_of(const nlohmann::json& value) {
  return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

} // namespace

RequestServer::RequestServer(Connections& connections, int job_folder)
    : connections_(connections), folder_(job_folder) {
  const auto address = address_in(folder_);
  Fd listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  unlinkat(folder_, k_socket, 0); // Left by a supervisor that was killed.
  if (listener &&
      bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 &&
      listen(listener.get(), static_cast<int>(k_most_clients)) == 0) {
    listener_ = std::move(listener);
    connections_.watch(listener_.get(), EPOLLIN);
  }
}

void RequestServer::close() {
  if (listener_) {
    clients_.clear();
    listener_.reset();
    unlinkat(folder_, k_socket, 0);
  }
}

void RequestServer::advance() {
  while (listener_ && clients_.size() < k_most_clients) {
    Fd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) {
      break;
    }
    connections_.watch(socket.get(), EPOLLIN);
    clients_.push_back({.socket = std::move(socket)});
  }
  for (auto& client : clients_) {
    if (client.state == Client::State::asks) {
      read_request(client);
    }
    if (client.state == Client::State::waits || client.state == Client::State::hears) {
      answer(client);
    }
  }
  clients_.remove_if([](const Client& client) { return client.state == Client::State::gone; });
}

void RequestServer::read_request(Client& client) {
  std::array<char, 4096> block{};
  ssize_t count = 0;
  while (client.request.size() <= k_longest_request &&
         (count = read(client.socket.get(), block.data(), block.size())) > 0) {
    client.request.append(block.data(), static_cast<std::size_t>(count));
  }
  if (client.request.size() > k_longest_request || (count < 0 && errno != EAGAIN)) {
    client.state = Client::State::gone;
  } else if (count == 0) {
    ask(client);
  }
}

void RequestServer::ask(Client& client) {
  try {
    const auto request = nlohmann::json::parse(client.request);
    const auto script = request.at("script").get<std::string>();
    for (const auto& host : request.at("hosts")) {
      client.asked.push_back(connections_.ask(host.get<std::string>(), script));
    }
    connections_.ignore(client.socket.get()); // At end of file a socket is always readable.
    client.state = Client::State::waits;
  } catch (const nlohmann::json::exception&) {
    client.state = Client::State::gone;
  }
}

/// Answers once all hosts have answered.
void RequestServer::answer(Client& client) {
  if (client.state == Client::State::waits) {
    if (!std::all_of(client.asked.begin(), client.asked.end(),
                     [&](RankId key) { return connections_.is_answered(key); })) {
      return;
    }
    auto answers = nlohmann::json::array();
    for (const auto key : client.asked) {
      const auto answer = connections_.take_answer(key);
      answers.push_back({{"text", answer.text}, {"failure", answer.failure}});
    }
    client.answer = json_text_of(answers);
    client.state = Client::State::hears;
    // To send the rest when it is writable.
    connections_.watch(client.socket.get(), EPOLLOUT | EPOLLET);
  }
  while (!client.answer.empty()) {
    const auto count =
        send(client.socket.get(), client.answer.data(), client.answer.size(), MSG_NOSIGNAL);
    if (count < 0) {
      client.state = errno == EAGAIN ? client.state : Client::State::gone;
      return;
    }
    client.answer.erase(0, static_cast<std::size_t>(count));
  }
  client.state = Client::State::gone;
}

std::optional<std::vector<HostAnswer>>
ask_supervisor(int job_folder, const std::vector<std::string>& hosts, const std::string& script) {
  const auto address = address_in(job_folder);
  const Fd line(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!line ||
      connect(line.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return std::nullopt;
  }
  setsockopt(line.get(), SOL_SOCKET, SO_RCVTIMEO, &k_answer_limit, sizeof(k_answer_limit));
  const auto request = json_text_of({{"hosts", hosts}, {"script", script}});
  for (std::string_view left = request; !left.empty();) {
    const auto count = send(line.get(), left.data(), left.size(), MSG_NOSIGNAL);
    if (count < 0 && errno != EINTR) {
      return std::nullopt;
    }
    left.remove_prefix(static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
  }
  shutdown(line.get(), SHUT_WR);
  std::string said;
  std::array<char, 4096> block{};
  ssize_t count = 0;
  while ((count = read(line.get(), block.data(), block.size())) > 0) {
    said.append(block.data(), static_cast<std::size_t>(count));
  }
  const auto found = nlohmann::json::parse(said, nullptr, false);
  if (!found.is_array() || found.size() != hosts.size()) {
    return std::nullopt;
  }
  std::vector<HostAnswer> answers;
  for (const auto& each : found) {
    auto& answer = answers.emplace_back();
    answer.failure = each.value("failure", "");
    std::istringstream text(each.value("text", ""));
    for (std::string words; std::getline(text, words);) {
      answer.lines.push_back(printable(words));
    }
  }
  return answers;
}

} // namespace dtrain::ssh
