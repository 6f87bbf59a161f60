// A parameter server: holds its shards, averages what workers push and hands out new values.
//
// It knows no model and no data: the shards, the policy and the first values come from the workers,
// who must agree on them. One thread serves all workers; another shakes hands with those that come.
//
// Start: it waits for all workers of the job, at most rendezvous_timeout, and fails naming those
// that are missing. A server that comes back with a snapshot waits for them as long, then goes on
// with those that came.
// Workers come and go: one whose connection closes, or that is silent for peer_timeout, is no
// longer waited for, and what it had pushed for the update under way is dropped; one that comes
// back takes part from its first push. When all are gone without a goodbye, the server waits
// rendezvous_timeout for one to come back, then fails.
// End: the last worker says goodbye.
//
// Snapshots: of the first values, then every policy.snapshot_every updates, at the same versions on
// every server, the newest two kept: servers are an update apart at most, so they have one in
// common. When a server has come back, all of them restart from the newest that all have, as the
// workers tell them (protocol.h: generations), so that the job continues as if the updates since
// had not been; the workers take the same samples again. In an asynchronous job the one that came
// back restarts alone, from its own newest.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <set>
#include <string>

#include <fmt/format.h>

#include "trainer/device/device.h"
#include "trainer/strategy/parameter_server/session.h"

namespace trainer {

struct ServerOptions {
  std::string host;
  int port = 0; ///< 0: any free one, see port().
  int index = 0;
  std::string token;
  std::string snapshot_dir; ///< Empty: no snapshots.
  double peer_timeout = 8;
  double rendezvous_timeout = 60;
  double report_seconds = 10; ///< Between lines of traffic.
};

/// A line for the log.
using Notice = std::function<void(const std::string&)>;

class ParameterServer final : public SessionOwner {
 public:
  /// Listens. Throws ClusterError when the address cannot be had.
  ParameterServer(const ServerOptions& options, Device& device, Notice notice);

  int port() const { return peers_.port(); }

  /// Serves until the last worker has said goodbye, or stop(). Throws PeerError, DataError.
  void run();

  /// From another thread: run() returns at once, without goodbyes.
  void stop() noexcept {
    stopped_ = true;
    peers_.wake();
  }

 private:
  void hello(Session& session, WorkerHello hello) override;
  ShardStore& store() override { return *store_; }
  void welcome(Session& session) override;
  void begin(Session& session, const FrameFields& fields,
             std::span<const std::byte> values) override;
  void pushed(Session& session) override;
  void pull(Session& session) override;
  void goodbye(Session& session) override {
    done_.insert(session.worker());
    session.over = true;
    advance_ = true;
  }

  void serve();
  bool is_finished() const;

  static void refuse(Session& session, std::string_view why);
  void lose(Session& session, const std::string& why);
  void remove_gone();
  int active_workers() const {
    return static_cast<int>(
        std::count_if(sessions_.begin(), sessions_.end(), [](const Session& session) {
          return session.worker() >= 0 && !session.over;
        }));
  }

  std::int64_t version() const { return store_ ? store_->version() : 0; }
  void say(const std::string& text) const {
    notice_(fmt::format("ps {}: {}", options_.index, text));
  }

  bool restart(Session& session, const FrameFields& fields, std::span<const std::byte> values);
  void save();

  void update();
  bool update_sync();
  void update_async();
  void answer(Session& session);
  void after_update();
  void add_score(const FrameFields& push);
  FrameFields values_header() const;
  std::int64_t slowest_clock() const;
  void end_gathering();
  std::vector<int> missing_workers() const;

  void keep_time();
  void say_goodbye();

  struct Traffic {
    std::uint64_t in = 0;
    std::uint64_t out = 0;
    std::uint64_t shared = 0;
  };
  static void add_traffic(const Session& session, Traffic& to) {
    to.in += session.channel.bytes_in();
    to.out += session.channel.bytes_out();
    to.shared += session.shared_bytes;
  }
  Traffic traffic() const; ///< Since the start.
  void report();

  ServerOptions options_;
  Device& device_;
  Notice notice_;
  std::atomic<bool> stopped_{false};

  Peers<Session> peers_;
  std::list<Session>& sessions_ = peers_.all();
  std::optional<WorkerHello> settings_; ///< The first worker's; all others agree.
  std::optional<ShardStore> store_;
  std::vector<std::int64_t> snapshots_; ///< Newest first.
  std::int64_t generation_ = 0;         ///< 0: there are no values.
  std::int64_t began_at_ = 0;           ///< Its first version.
  bool resumed_ = false;                ///< From a snapshot.
  bool gathering_ = true;
  bool advance_ = false; ///< A worker left: an update may be complete now.
  std::set<int> done_;
  Deadline gather_until_;
  Deadline alone_until_;
  std::string last_lost_;

  FrameFields totals_; ///< Loss, correct, count of all pushes applied in this generation.
  std::int64_t late_ = 0;
  std::int64_t stale_most_ = 0;
  Deadline next_report_;
  Traffic gone_; ///< Of sessions that are no more.
  Traffic reported_;
  std::int64_t reported_version_ = 0;
  Deadline reported_at_ = Clock::now();
};

} // namespace trainer
