// Failure detection: heartbeats between every rank and rank 0 over the rendezvous' connections.
//
// One thread a rank. Every rank sends rank 0 its step, and rank 0 every rank a heartbeat, four
// times in a peer time-out but at least once a second. A connection that closes without a goodbye
// is a death, silence longer than the time-out a rank that hangs or is cut off; rank 0
// reports it to all, and from then on check() throws on every rank. When rank 0 itself is the one,
// each rank finds that out alone. A rank that lives but does not enter a collective that others
// wait in (collective_log.h) is a failure too, after the longer collective time-out.
//
// Blocking waits for a peer, in collectives too, call check() at least every k_check_seconds.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "trainer/job/collective_log.h"
#include "trainer/job/handshake.h"
#include "trainer/job/options.h"
#include "trainer/job/socket.h"

namespace trainer {

inline constexpr double k_check_seconds = 0.05;

class Health {
 public:
  /// `links` to peers in rank order, as Star::release_links() gives them.
  Health(int rank, std::vector<Introduction> who, std::vector<Fd> links, const JobOptions& options);
  ~Health();
  Health(const Health&) = delete;
  Health& operator=(const Health&) = delete;

  /// Throws PeerError once any rank is known to have failed, or has left with fewer collectives
  /// done than this rank has begun; also once this rank has left.
  void check();

  void set_step(std::int64_t step) noexcept { step_.store(step, std::memory_order_relaxed); }
  /// This rank begins its n-th collective, from 1 on, …
  void begin(std::uint64_t n, const Call& call);
  /// … and has left it and all before it.
  void end(std::uint64_t n) { log_.end(n); }

  /// Reports a failure that this rank has found to all. Throws PeerError: with `text`, or with an
  /// earlier failure, which is then the cause.
  [[noreturn]] void fail(const std::string& text);

  /// A data connection broke. Its cause is usually about to arrive by the control connection: waits
  /// for that for a moment, then fails with `text`.
  [[noreturn]] void fail_link(const std::string& text);

  /// "rank 2 (host-b, pid 123)"
  std::string name(int rank) const { return who_[static_cast<std::size_t>(rank)].name(); }

  /// Reports the error with which this rank is about to give up.
  void set_reason(const std::string& why) {
    const std::lock_guard lock(mutex_);
    reason_ = why;
  }

  /// Says goodbye: done, or `gave_up` on an error of this rank's own. Rank 0 stays until the
  /// others have left, at most for a peer time-out.
  void leave(bool gave_up) noexcept;

 private:
  struct Note;
  struct Peer;

  void run();
  void read(Peer& peer);
  void handle(Peer& peer, const Note& note);
  void send_heartbeat(Peer& peer);
  void lost(Peer& peer, const std::string& why);
  void look_for_stall();
  void note_contact();
  void write_log() const;
  void declare(const std::string& text, int about);
  void note_left(int rank, std::int64_t step, std::uint64_t done);
  void send(Peer& peer, const Note& note);
  Note make_note(std::uint32_t type) const;
  Place place() const { return log_.place(step_.load(std::memory_order_relaxed)); }
  void wake() noexcept;
  bool may_stop() const;

  int rank_;
  std::vector<Introduction> who_;
  double peer_timeout_;
  double period_;
  double collective_timeout_;
  std::string log_folder_; ///< Empty: the log is not written.
  CollectiveLog log_;

  std::atomic<std::int64_t> step_{-1};
  std::atomic<std::uint64_t> begun_{0};
  std::atomic<bool> failed_{false};
  std::atomic<bool> has_left_{false};
  std::atomic<std::uint64_t> fewest_done_{std::numeric_limits<std::uint64_t>::max()};

  mutable std::mutex mutex_; ///< Guards the rest of what both threads use.
  std::string failure_;
  std::string left_; ///< The rank that left with fewest_done_, and its step.
  std::string to_report_;
  std::string reason_;
  bool leaving_ = false;
  bool gave_up_ = false;

  Fd wake_;
  // Used by the thread only:
  std::vector<Peer> peers_;
  TrackedPlace own_;
  std::shared_ptr<LastContact> contact_;
  Clock::time_point turned_ = Clock::now(); ///< The loop, last.
  bool was_stopped_ = false;
  std::thread thread_;
};

} // namespace trainer
