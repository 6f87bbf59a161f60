// Time-outs between the ranks of a job, and what outlives their connections.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>

namespace trainer {

/// What a rank knows about its peers after the end of a communicator.
struct LastContact {
  explicit LastContact(std::chrono::steady_clock::time_point when) : heard(when) {}

  /// When all peers were last heard of by a rank that was not itself stopped meanwhile: until then
  /// none of them can have counted it out.
  std::atomic<std::chrono::steady_clock::time_point> heard;

  /// This rank's machine closed its connection in due form and without a goodbye, as it does for a
  /// process that ends. What cuts ranks off can only let packets vanish, or answer with a reset.
  void note_closed(int rank) {
    const std::lock_guard lock(mutex_);
    closed_.insert(rank);
  }
  std::set<int> take_closed() {
    const std::lock_guard lock(mutex_);
    return std::exchange(closed_, {});
  }

 private:
  std::mutex mutex_;
  std::set<int> closed_;
};

struct JobOptions {
  double rendezvous_timeout = 60; ///< Seconds for all ranks to arrive.
  double notice_after = 5;        ///< Seconds of it until `notice` is called with those missing.
  std::function<void(const std::string&)> notice; ///< Empty: no notice.
  double peer_timeout = 8;         ///< Seconds of silence after which a peer is taken for dead.
  double collective_timeout = 600; ///< Seconds in a collective that a rank never enters; 0: ever.
  std::string collective_log; ///< Folder for each rank's collective_log.h on a failure; "": none.
  std::shared_ptr<LastContact> contact; ///< Kept up to date; may be null.
  std::string host_identity;            ///< Equal on ranks of one host; empty: the boot id.
};

} // namespace trainer
