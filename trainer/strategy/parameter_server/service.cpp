#include "trainer/strategy/parameter_server/service.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "trainer/job/heartbeat.h"

namespace trainer {

WorkerService::WorkerService(PsJob job, const TaskAddress& address, std::string name,
                             LinkPurpose purpose, Notice notice)
    : job_(std::move(job)), name_(std::move(name)), notice_(std::move(notice)),
      listener_(listen_as_task(address, name_, job_.rendezvous_timeout)),
      port_(local_address(listener_).port()),
      arrivals_(std::move(listener_), job_.task.token, purpose) {}

void WorkerService::run() {
  alone_until_ = after_seconds(job_.rendezvous_timeout);
  try {
    while (!stopped_ && !is_finished()) {
      if (receive()) {
        update();
      }
      let_in();
      keep_time();
      send_heartbeats();
      remove_gone();
    }
  } catch (const Error& error) {
    for (Session& session : sessions_) {
      guarded(session, [&] { refuse(session, error.what()); });
    }
    throw;
  }
  // The last values and refusals go out before the connections close.
  for (Session& session : sessions_) {
    guarded(session, [&] { session.channel.flush(); });
  }
}

/// Waits for what comes, a heartbeat's time at most, and hands it on. Whether anything did.
bool WorkerService::receive() {
  polled_.clear();
  polled_.push_back({arrivals_.fd(), POLLIN, 0});
  for (const Session& session : sessions_) {
    const short out = session.channel.has_unsent() ? POLLOUT : 0;
    polled_.push_back({session.channel.fd(), static_cast<short>(POLLIN | out), 0});
  }
  if (poll(polled_.data(), polled_.size(),
           poll_timeout(after_seconds(heartbeat_seconds(job_.peer_timeout)))) <= 0) {
    return false;
  }
  std::size_t i = 0;
  for (Session& session : sessions_) {
    if (polled_[++i].revents != 0 && !session.over) {
      guarded(session, [&] {
        session.channel.flush();
        session.channel.receive();
        session.heard = Clock::now();
      });
    }
  }
  return true;
}

void WorkerService::let_in() {
  for (Acceptor::Arrival& arrival : arrivals_.take()) {
    tune_link(arrival.link, job_.peer_timeout);
    sessions_.emplace_back(std::move(arrival.who), std::move(arrival.link), *this);
  }
}

/// Now and then: who is silent is lost, the others are told that this task lives.
void WorkerService::send_heartbeats() {
  if (active_workers() == 0 && !is_finished() && Clock::now() >= alone_until_) {
    throw PeerError(last_lost_.empty()
                        ? fmt::format("{} {}", name_, who_did_not_come())
                        : fmt::format("{} waited {:g} s with no worker left{}; the last was {}",
                                      name_, job_.rendezvous_timeout, progress(), last_lost_));
  }
  if (Clock::now() < next_heartbeat_) {
    return;
  }
  next_heartbeat_ = after_seconds(heartbeat_seconds(job_.peer_timeout));
  for (Session& session : sessions_) {
    const double silent = -seconds_until(session.heard);
    if (silent > job_.peer_timeout) {
      lose(session, fmt::format("silent for {:.0f} s", silent));
    } else if (is_active(session) && !session.channel.has_unsent()) {
      guarded(session, [&] { session.channel.send(FrameType::heartbeat); });
    }
  }
}

void WorkerService::lose(Session& session, const std::string& why) {
  if (session.over) {
    return;
  }
  session.over = true;
  advance_ = true;
  if (session.worker() < 0) {
    return;
  }
  last_lost_ = fmt::format("{}: {}", session.name(), why);
  alone_until_ = after_seconds(job_.rendezvous_timeout);
  if (const std::string follows = lost(session); !follows.empty()) {
    say(fmt::format("lost {}; {}", last_lost_, follows));
  }
}

void WorkerService::remove_gone() {
  sessions_.remove_if([&](const Session& session) {
    if (session.over) {
      gone(session);
    }
    return session.over;
  });
  if (std::exchange(advance_, false)) {
    update();
  }
}

void WorkerService::hello(Session& session, const WorkerHello& hello) {
  std::string why = refusal(hello);
  for (const Session& other : sessions_) {
    if (why.empty() && &other != &session && !other.over && other.worker() == hello.worker) {
      why = fmt::format("worker {} is there already", hello.worker);
    }
  }
  if (!why.empty()) {
    refuse(session, why);
    throw LinkError(why);
  }
  session.accept(hello);
  joined(session);
}

void WorkerService::welcome(Session& session) {
  session.channel.send(FrameType::welcome, bytes_of(standing(session)));
}

void WorkerService::goodbye(Session& session) {
  done_.insert(session.worker());
  session.over = true;
  advance_ = true;
}

std::vector<int> WorkerService::missing_workers() const {
  std::vector<int> missing;
  for (int worker = 0; worker < workers(); ++worker) {
    const bool is_here =
        std::any_of(sessions_.begin(), sessions_.end(), [worker](const Session& session) {
          return session.worker() == worker && !session.over;
        });
    if (!is_here && !done_.contains(worker)) {
      missing.push_back(worker);
    }
  }
  return missing;
}

std::string WorkerService::who_did_not_come() const {
  const std::string refusals = arrivals_.refusals();
  return fmt::format("waited {:g} s: {} did not come{}{}", job_.rendezvous_timeout,
                     workers() == 0 ? std::string("all workers")
                                    : fmt::format("workers {} of {}",
                                                  fmt::join(missing_workers(), ", "), workers()),
                     refusals.empty() ? "" : "; ", refusals);
}

} // namespace trainer
