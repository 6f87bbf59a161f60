// A task that serves a job's workers, parameter server or chief: their connections on one poll
// loop. Newcomers are let in once they have shaken hands (another thread's work), what they send is
// read as it comes, and one whose connection closes, or that is silent for peer_timeout, is named
// and lost. When all are gone without a goodbye, the task waits rendezvous_timeout for one to come
// back, then fails.
#pragma once

#include <atomic>
#include <functional>
#include <list>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <poll.h>

#include "trainer/job/arrivals.h"
#include "trainer/job/dialling.h"
#include "trainer/strategy/parameter_server/job.h"
#include "trainer/strategy/parameter_server/session.h"

namespace trainer {

class WorkerService : public SessionOwner {
 public:
  int port() const noexcept { return port_; }

  /// Serves until the job is done and the workers have left, or stop(). Throws PeerError,
  /// DataError.
  void run();

  /// From another thread: run() returns at once.
  void stop() noexcept {
    stopped_ = true;
    arrivals_.wake();
  }

 protected:
  /// Listens; port 0: any free one, see port(). Throws ClusterError when the address cannot be had.
  WorkerService(PsJob job, const TaskAddress& address, std::string name, LinkPurpose purpose,
                Notice notice);

  virtual int workers() const = 0; ///< Of the job; 0: not known yet.
  virtual bool is_finished() const = 0;
  /// Why a worker is turned away; empty: it is not.
  virtual std::string refusal(const WorkerHello& hello) = 0;
  virtual void joined(Session& session) = 0;
  /// What follows from its loss, to be said; empty: nothing is said.
  virtual std::string lost(const Session& session) = 0;
  virtual ServerWelcome standing(const Session& /*session*/) const { return {}; }
  virtual void update() {} ///< Something has come, or a worker left.
  virtual void keep_time() {}
  virtual std::string progress() const { return ""; } ///< " and 3 of 5 batches done"

  void hello(Session& session, const WorkerHello& hello) override;
  void welcome(Session& session) override;
  void goodbye(Session& session) override;

  /// Where it throws LinkError, the worker is lost.
  template <typename Act>
  void guarded(Session& session, const Act& act) {
    try {
      act();
    } catch (const LinkError& error) {
      lose(session, error.what());
    }
  }
  static void refuse(Session& session, std::string_view why) {
    session.channel.send(FrameType::refused, std::as_bytes(std::span(why)));
  }
  static bool is_active(const Session& session) { return session.worker() >= 0 && !session.over; }
  int active_workers() const {
    return static_cast<int>(std::count_if(sessions_.begin(), sessions_.end(), is_active));
  }
  std::vector<int> missing_workers() const;
  std::string who_did_not_come() const; ///< "waited 60 s: workers 0, 2 of 3 did not come"
  void say(const std::string& text) const { notice_(fmt::format("{}: {}", name_, text)); }

  PsJob job_;
  std::list<Session> sessions_;
  std::set<int> done_;   ///< Workers.
  bool advance_ = false; ///< A worker left: an update may be complete now.

 private:
  bool receive();
  void let_in();
  void send_heartbeats();
  void lose(Session& session, const std::string& why);
  void remove_gone();
  /// Of one that is no more.
  virtual void gone(const Session& /*session*/) {}

  std::string name_;
  Notice notice_;
  std::atomic<bool> stopped_{false};
  Fd listener_; ///< Until arrivals_ has it.
  int port_;
  Arrivals arrivals_;
  std::vector<pollfd> polled_;
  Deadline next_heartbeat_ = Clock::now();
  Deadline alone_until_;
  std::string last_lost_;
};

} // namespace trainer
