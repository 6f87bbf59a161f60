#include "trainer/strategy/parameter_server/service.h"

#include <algorithm>

#include <fmt/ranges.h>
#include <sys/eventfd.h>

#include "trainer/job/heartbeat.h"

namespace trainer {

WorkerService::WorkerService(PsJob job, const TaskAddress& address, std::string name,
                             LinkPurpose purpose, Notice notice)
    : job_(std::move(job)), name_(std::move(name)), notice_(std::move(notice)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      acceptor_(listen_as_task(address, name_, job_.rendezvous_timeout), job_.task.token, purpose) {
}

void WorkerService::run() {
  alone_until_ = after_seconds(job_.rendezvous_timeout);
  try {
    while (!stopped_ && !is_finished()) {
      receive();
      send_heartbeats();
      sessions_.remove_if([](const Session& session) { return session.over; });
      advance();
    }
  } catch (const Error& error) {
    for (Session& session : sessions_) {
      guarded(session, [&] { refuse(session, error.what()); });
    }
    throw;
  }
  // Send the last values and refusals before the connections close.
  for (Session& session : sessions_) {
    guarded(session, [&] { session.channel.flush(); });
  }
}

void WorkerService::stop() noexcept {
  stopped_ = true;
  eventfd_write(wake_.get(), 1);
}

/// Waits for input, for a heartbeat interval at most, and dispatches it.
void WorkerService::receive() {
  std::vector<pollfd> polled = acceptor_.to_poll();
  const std::size_t newcomers = polled.size();
  for (const Session& session : sessions_) {
    polled.push_back(session.channel.to_poll());
  }
  polled.push_back({wake_.get(), POLLIN, 0});
  poll(polled.data(), polled.size(),
       poll_timeout(after_seconds(heartbeat_seconds(job_.peer_timeout))));
  auto ready = polled.begin() + static_cast<std::ptrdiff_t>(newcomers);
  for (Session& session : sessions_) {
    const short events = (ready++)->revents;
    if (!session.over) {
      guarded(session, [&] { session.channel.advance(events, job_.peer_timeout); });
    }
  }
  if (newcomers > 1 || polled.front().revents != 0) { // A handshake or a new connection.
    let_in();
  }
}

void WorkerService::let_in() {
  while (auto arrival = acceptor_.next(Clock::now())) {
    tune_link(arrival->link, job_.peer_timeout);
    sessions_.emplace_back(std::move(arrival->who), std::move(arrival->link),
                           [this](Session& session, FrameType type) { handle(session, type); });
  }
}

void WorkerService::handle(Session& session, FrameType type) {
  switch (type) {
  case FrameType::heartbeat: // Its arrival is all that counts.
    return;
  case FrameType::goodbye:
    done_.insert(session.worker());
    session.over = true;
    return;
  case FrameType::hello:
    accept(session);
    break;
  default:
    break;
  }
  serve(session, type);
}

void WorkerService::accept(Session& session) {
  const WorkerHello hello = session.hello();
  std::string why;
  if (!agreed_) {
    why = begin(hello);
  } else if (const std::string differs = difference(*agreed_, hello); !differs.empty()) {
    why = fmt::format("it trains another job than worker {}: {}", agreed_->worker, differs);
  }
  for (const Session& other : sessions_) {
    if (why.empty() && other.is_active() && other.worker() == hello.worker) {
      why = fmt::format("worker {} is there already", hello.worker);
    }
  }
  if (!why.empty()) {
    refuse(session, why);
    throw LinkError(why);
  }
  agreed_ = agreed_.value_or(hello);
  session.accept(hello);
  if (!seen_.insert(session.worker()).second) {
    say(fmt::format("{} is back", session.name()));
  }
}

/// Sends heartbeats to the workers.
void WorkerService::send_heartbeats() {
  if (active_workers() == 0 && !is_finished() && Clock::now() >= alone_until_) {
    throw PeerError(last_lost_.empty()
                        ? fmt::format("{} {}", name_, who_did_not_come())
                        : fmt::format("{} waited {:g} s with no worker left; the last was {}",
                                      name_, job_.rendezvous_timeout, last_lost_));
  }
  if (Clock::now() < next_heartbeat_) {
    return;
  }
  next_heartbeat_ = after_seconds(heartbeat_seconds(job_.peer_timeout));
  for (Session& session : sessions_) {
    if (session.is_active() && !session.channel.has_unsent()) {
      guarded(session, [&] { session.channel.send(FrameType::heartbeat); });
    }
  }
}

void WorkerService::remove(Session& session, const std::string& why) {
  if (!std::exchange(session.over, true) && session.worker() >= 0) {
    last_lost_ = fmt::format("{}: {}; {}", session.name(), why, lose(session.worker()));
    alone_until_ = after_seconds(job_.rendezvous_timeout);
    say("lost " + last_lost_);
  }
}

std::vector<int> WorkerService::missing_workers() const {
  std::set<int> here = done_;
  for (const Session& session : sessions_) {
    if (session.is_active()) {
      here.insert(session.worker());
    }
  }
  std::vector<int> missing;
  for (int worker = 0; worker < workers(); ++worker) {
    if (!here.contains(worker)) {
      missing.push_back(worker);
    }
  }
  return missing;
}

std::string WorkerService::who_did_not_come() const {
  const std::string refusals = acceptor_.refusals();
  return fmt::format("waited {:g} s: {} did not come{}{}", job_.rendezvous_timeout,
                     workers() == 0 ? std::string("all workers")
                                    : fmt::format("workers {} of {}",
                                                  fmt::join(missing_workers(), ", "), workers()),
                     refusals.empty() ? "" : "; ", refusals);
}

} // namespace trainer
