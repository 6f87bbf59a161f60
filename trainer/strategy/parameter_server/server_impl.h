// Inside of ParameterServer, for server.cpp, who comes, stays and goes, and updates.cpp, what their
// pushes become.
#pragma once

#include <algorithm>
#include <atomic>
#include <set>

#include <fmt/format.h>

#include "trainer/strategy/parameter_server/server.h"
#include "trainer/strategy/parameter_server/session.h"

namespace trainer {

class ParameterServer::Impl final : public SessionOwner {
 public:
  Impl(const ServerOptions& options, Device& device, Notice notice);

  int port() const { return peers_.port(); }

  void stop() noexcept {
    stopped_ = true;
    peers_.wake();
  }

  void run();

  // SessionOwner
  void hello(Session& session, WorkerHello hello) override;
  ShardStore& store() override { return *store_; }
  void initial(std::span<const std::byte> values) override;
  void pushed(Session& session) override;
  void pull(Session& session) override { answer(session); }
  void rollback(Session& session, std::int64_t step, std::int64_t incarnation) override;
  void goodbye(Session& session) override {
    done_.insert(session.worker());
    session.over = true;
    advance_ = true;
  }

 private:
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
  std::int64_t incarnation_; ///< A random number a process.

  Peers<Session> peers_;
  std::list<Session>& sessions_ = peers_.all();
  std::optional<WorkerHello> settings_; ///< The first worker's; all others agree.
  std::optional<ShardStore> store_;
  bool has_values_ = false;
  bool resumed_ = false; ///< From a snapshot, with no update since.
  bool gathering_ = true;
  bool advance_ = false; ///< A worker left: an update may be complete now.
  std::set<int> done_;
  std::int64_t rolled_back_for_ = 0; ///< The incarnation that the last rollback was about.
  Deadline gather_until_;
  Deadline alone_until_;
  std::string last_lost_;

  FrameFields totals_; ///< Loss, correct, count of all pushes applied.
  std::int64_t late_ = 0;
  std::int64_t stale_most_ = 0;
  Deadline next_report_;
  Traffic gone_; ///< Of sessions that are no more.
  Traffic reported_;
  std::int64_t reported_version_ = 0;
  Deadline reported_at_ = Clock::now();
};

} // namespace trainer
