#include "backends/ssh/connections.h"

#include "backends/job_status.h"
#include "backends/ssh/ssh_command.h"
#include "backends/support/os/files.h"
#include "backends/support/os/subprocess.h"
#include "submit/errors.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <optional>
#include <utility>

namespace dtrain::ssh {

namespace {

constexpr std::chrono::seconds k_unheard{4}; ///< Longest time for which we may not have listened.
constexpr std::chrono::seconds k_rest{2}; ///< For the last output of a connection that has ended.
constexpr std::chrono::milliseconds k_close{2500}; ///< For agents to end.
constexpr std::size_t k_most_answer = std::size_t{1} << 22U;

Fd watch_children() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  return Fd(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
}

Fd start_timer() {
  Fd timer(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  itimerspec every{};
  every.it_interval.tv_sec = every.it_value.tv_sec = 1;
  timerfd_settime(timer.get(), 0, &every, nullptr);
  return timer;
}

} // namespace

Connections::Connections(std::string job_uid, TakeFrame take, Lose lose)
    : job_uid_(std::move(job_uid)), take_(std::move(take)), lose_(std::move(lose)),
      children_(watch_children()), timer_(start_timer()), events_(epoll_create1(EPOLL_CLOEXEC)) {
  if (!children_ || !timer_ || !events_) {
    throw EngineError(fmt::format("cannot watch processes: {}", errno_text()));
  }
  watch(children_.get(), EPOLLIN);
  watch(timer_.get(), EPOLLIN);
}

void Connections::watch(int fd, unsigned events) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  epoll_ctl(events_.get(), EPOLL_CTL_ADD, fd, &event);
}

void Connections::ignore(int fd) { epoll_ctl(events_.get(), EPOLL_CTL_DEL, fd, nullptr); }

void Connections::set_limits(std::chrono::milliseconds host_timeout, int grace_ms) {
  host_timeout_ = host_timeout;
  grace_ms_ = grace_ms;
}

void Connections::open(const HostSlots& host, std::size_t number) {
  losses_.erase(host.name);
  lacks_.erase(host.name);
  auto connection = std::make_unique<Connection>(
      host.name,
      AgentSetting{.job = job_uid_,
                   .number = number,
                   .host_timeout = std::chrono::ceil<std::chrono::seconds>(host_timeout_),
                   .grace_ms = grace_ms_,
                   .gpus = host.gpus,
                   .without_gpus = host.without_gpus},
      ssh_connection_command);
  watch(connection->out(), EPOLLIN);
  watch(connection->in(), EPOLLOUT | EPOLLET); // When it is writable again.
  Kept kept;
  kept.connection = std::move(connection);
  kept_[host.name] = std::move(kept);
}

Connection* Connections::find(const std::string& host) {
  const auto found = kept_.find(host);
  return found == kept_.end() ? nullptr : found->second.connection.get();
}

const Connections::Loss* Connections::loss(const std::string& host) const {
  const auto found = losses_.find(host);
  return found == losses_.end() ? nullptr : &found->second;
}

void Connections::drop(const std::string& host, const std::string& why) {
  if (kept_.contains(host)) {
    lose(host, {why, ""});
  }
}

RankId Connections::ask(const std::string& host, std::string_view script) {
  const auto key = new_key();
  auto& answer = answers_[key];
  answer.host = host;
  if (auto* connection = find(host)) {
    connection->run(key, script);
  } else {
    answer.is_there = true;
    answer.failure = "is not connected";
  }
  return key;
}

RankId Connections::claim(const std::string& host, int gpus, std::string_view but) {
  const auto key = new_key();
  auto& answer = answers_[key];
  answer.host = host;
  if (auto* connection = find(host)) {
    connection->claim(key, gpus, but);
  } else {
    answer.is_there = true;
    answer.failure = "is not connected";
  }
  return key;
}

Connections::Answer Connections::take_answer(RankId key) {
  return std::move(answers_.extract(key).mapped());
}

void Connections::forget(RankId key) {
  const auto answer = take_answer(key);
  if (auto* connection = find(answer.host)) {
    connection->free(key); // Though they be claimed later than this is said.
  }
}

void Connections::take(const std::string& host, const AgentFrame& frame) {
  using Kind = AgentFrame::Kind;
  if (frame.kind == Kind::heartbeat) {
    return;
  }
  if (frame.kind == Kind::lacks && frame.key == 0) {
    lacks_[host] = printable(frame.text);
    return;
  }
  const auto found = answers_.find(frame.key);
  if (found == answers_.end()) {
    take_(frame);
    return;
  }
  auto& answer = found->second;
  switch (frame.kind) {
  case Kind::out:
  case Kind::err: {
    auto& text = frame.kind == Kind::out ? answer.text : answer.errors;
    text.append(frame.text.substr(0, k_most_answer - std::min(k_most_answer, text.size())));
    break;
  }
  case Kind::gpus:
    answer.text = frame.text;
    answer.is_there = true;
    break;
  case Kind::lacks:
    answer.failure = printable(frame.text);
    answer.is_there = true;
    break;
  default:
    if (ending_of(frame).exit_code != 0) {
      const auto why = last_line(answer.errors);
      answer.failure = why.empty() ? "a script there failed without a message" : why;
    }
    answer.is_there = true;
  }
}

/// False where there is nothing more.
bool Connections::read_some(Kept& kept) {
  if (kept.at_end) {
    return false;
  }
  auto& connection = *kept.connection;
  try {
    if (connection.receive([&](const AgentFrame& frame) { take(connection.host(), frame); })) {
      return true;
    }
  } catch (const Error& error) {
    kept.failure = error.what();
  }
  kept.at_end = true;
  ignore(connection.out());
  if (!kept.status) {
    kept.ended = Clock::now();
  }
  connection.end();
  return false;
}

void Connections::reap(Kept& kept) {
  int status = 0;
  if (!kept.status && waitpid(kept.connection->pid(), &status, WNOHANG) != 0) {
    kept.status = status;
    kept.connection->forget_process();
    if (!kept.at_end) {
      kept.ended = Clock::now();
    }
  }
}

/// Reads the rest of its output and of what ssh reported, as far as they arrive.
std::optional<Connections::Loss> Connections::loss_of(const std::string& host, Kept& kept) const {
  const auto now = Clock::now();
  auto& connection = *kept.connection;
  if (!kept.at_end && !kept.status) {
    const auto silence = now - connection.heard();
    if (!connection.is_open() || silence < host_timeout_) {
      return std::nullopt;
    }
    return Loss{fmt::format("its host has not answered for {} s",
                            std::chrono::duration_cast<std::chrono::seconds>(silence).count()),
                ""};
  }
  if (!(kept.at_end && kept.status) && now < kept.ended + k_rest) {
    return std::nullopt;
  }
  Loss loss{"", connection.said()};
  const auto lack = lacks_.find(host);
  if (!kept.failure.empty()) {
    loss.why = kept.failure;
  } else if (lack != lacks_.end()) {
    loss.why = lack->second;
  } else if (kept.status && WIFSIGNALED(*kept.status)) {
    loss.why = "its ssh ended with " + ending_text(std::nullopt, WTERMSIG(*kept.status));
  } else if (loss.said.empty()) {
    loss.why = connection.is_open()
                   ? "the agent there has ended"
                   : "it answers, but did not start sh: check that ssh HOST true works";
  } else {
    loss.why = explain_loss(host, loss.said);
  }
  return loss;
}

void Connections::lose(const std::string& host, Loss loss) {
  kept_.erase(host);
  for (auto& [key, answer] : answers_) {
    if (answer.host == host && !answer.is_there) {
      answer.is_there = true;
      answer.failure = loss.why;
    }
  }
  const auto why = loss.why;
  losses_[host] = std::move(loss);
  lose_(host, why);
}

/// Whoever is not asked says nothing.
void Connections::send_heartbeats() {
  std::uint64_t times = 0;
  if (read(timer_.get(), &times, sizeof(times)) != sizeof(times)) {
    return;
  }
  for (auto& [host, kept] : kept_) {
    if (!kept.at_end) {
      kept.connection->heartbeat();
    }
  }
}

void Connections::advance() {
  // For pipes that become writable again, so that the event is consumed.
  std::array<epoll_event, 64> some{};
  epoll_wait(events_.get(), some.data(), static_cast<int>(some.size()), 0);
  signalfd_siginfo info{};
  while (read(children_.get(), &info, sizeof(info)) == sizeof(info)) {
  }
  const auto now = Clock::now();
  if (const auto gap = now - std::exchange(advanced_, now); gap > k_unheard) {
    for (auto& [host, kept] : kept_) { // This machine slept, for example.
      kept.connection->forgive(gap);
    }
  }
  send_heartbeats();
  std::vector<std::pair<std::string, Loss>> lost;
  for (auto& [host, kept] : kept_) {
    kept.connection->flush(); // If the input is closed, so is the output.
    reap(kept);
    while (read_some(kept) && kept.status) { // Reads all of a connection that has ended.
      pollfd more{kept.connection->out(), POLLIN, 0};
      if (poll(&more, 1, 0) == 0) {
        break;
      }
    }
    if (auto loss = loss_of(host, kept)) {
      lost.emplace_back(host, std::move(*loss));
    }
  }
  for (auto& [host, loss] : lost) {
    lose(host, std::move(loss));
  }
}

void Connections::wait(std::chrono::milliseconds most) {
  pollfd waits{events_.get(), POLLIN, 0};
  poll(&waits, 1, static_cast<int>(most.count()));
  advance();
}

std::set<std::string> Connections::suspects() const {
  std::set<std::string> hosts;
  const auto now = Clock::now();
  for (const auto& [host, kept] : kept_) {
    if (kept.connection->is_open() && kept.connection->is_suspect(now)) {
      hosts.insert(host);
    }
  }
  return hosts;
}

void Connections::close() {
  const auto suspect = suspects();
  for (auto& [host, kept] : kept_) {
    kept.connection->end();
  }
  const auto deadline = Clock::now() + k_close;
  std::erase_if(kept_, [&](const auto& entry) {
    return suspect.contains(entry.first) || !entry.second.connection->is_open();
  });
  while (!kept_.empty() && Clock::now() < deadline) {
    constexpr std::chrono::milliseconds k_round{100};
    wait(k_round);
  }
  kept_.clear();
}

} // namespace dtrain::ssh
