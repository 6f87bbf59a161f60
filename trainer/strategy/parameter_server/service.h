// A task that serves a job's workers, parameter server or chief: their connections on one poll
// loop. Newcomers are let in once they have shaken hands, what they send is read as it comes, and
// one whose connection closes, or that is silent for peer_timeout, is named and lost. When all are
// gone without a goodbye, the task waits rendezvous_timeout for one to come back, then fails.
#pragma once

#include <algorithm>
#include <atomic>
#include <list>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <poll.h>

#include "trainer/job/dialling.h"
#include "trainer/strategy/parameter_server/job.h"
#include "trainer/strategy/parameter_server/session.h"

namespace trainer {

class WorkerService {
 public:
  virtual ~WorkerService() = default;
  WorkerService(const WorkerService&) = delete;
  WorkerService& operator=(const WorkerService&) = delete;

  int port() const { return acceptor_.port(); }

  /// Serves until the job is done and the workers have left, or stop(). Throws PeerError,
  /// DataError.
  void run();

  /// Makes run() return; to be called from another thread.
  void stop() noexcept;

 protected:
  /// Listens; port 0: any free one, see port(). Throws ClusterError when the address cannot be had.
  WorkerService(PsJob job, const TaskAddress& address, std::string name, LinkPurpose purpose,
                Notice notice);

  virtual bool is_finished() const = 0;
  /// Checks the first worker. Returns why it is refused; empty: accepted.
  virtual std::string begin(const WorkerHello& hello) = 0;
  /// A request of a worker, or its hello, which was accepted.
  virtual void serve(Session& session, FrameType type) = 0;
  /// Called when a worker is lost. Returns what happens to its work, for the log.
  virtual std::string lose(int worker) = 0;
  /// Called after input, when a worker leaves, and periodically.
  virtual void advance() {}

  /// If it throws LinkError, the worker is lost.
  template <typename Act>
  void guarded(Session& session, const Act& act) {
    try {
      act();
    } catch (const LinkError& error) {
      remove(session, error.what());
    }
  }
  static void refuse(Session& session, std::string_view why) {
    session.channel.send(FrameType::refused, std::as_bytes(std::span(why)));
  }
  int active_workers() const {
    return static_cast<int>(std::count_if(sessions_.begin(), sessions_.end(),
                                          [](const Session& s) { return s.is_active(); }));
  }
  int workers() const {
    return static_cast<int>(agreed_ ? agreed_->workers : std::ssize(job_.task.workers));
  }
  std::vector<int> missing_workers() const;
  std::string who_did_not_come() const; ///< "waited 60 s: workers 0, 2 of 3 did not come"
  void say(const std::string& text) const { notice_(fmt::format("{}: {}", name_, text)); }

  PsJob job_;
  std::optional<WorkerHello> agreed_; ///< The first worker's; all others agree.
  std::list<Session> sessions_;
  std::set<int> done_; ///< Workers.

 private:
  void receive();
  void let_in();
  void accept(Session& session);
  void handle(Session& session, FrameType type);
  void send_heartbeats();
  void remove(Session& session, const std::string& why);

  std::string name_;
  Notice notice_;
  std::atomic<bool> stopped_{false};
  Fd wake_; ///< Wakes run() from its wait.
  Acceptor acceptor_;
  Deadline next_heartbeat_ = Clock::now();
  Deadline alone_until_;
  std::set<int> seen_;    ///< Workers that have come,
  std::string last_lost_; ///< and the last one that was lost.
};

} // namespace trainer
