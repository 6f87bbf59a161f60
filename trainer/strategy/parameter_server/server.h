// A parameter server: holds its shards, averages what workers push and hands out new values.
//
// It knows no model and no data: the shards, the policy and the first values come from the workers,
// who must agree on them. One thread serves all workers.
//
// Start: it waits for all workers of the job, at most rendezvous_timeout, and fails naming those
// that are missing. One that comes back with a snapshot waits for them as long, then goes on with
// those that came.
// What a lost worker had pushed for the update under way is dropped; one that comes back takes part
// from its first push.
// End: the last worker says goodbye.
//
// Snapshots: of the first values, then every policy.snapshot_every updates, at the same versions on
// every server, the newest two kept: servers are an update apart at most, so they have one in
// common. When a server has come back, all of them restart from the newest that all have, as the
// workers tell them (protocol.h: generations), so that the job continues as if the updates since
// had not been; the workers take the same samples again. In an asynchronous job the one that came
// back restarts alone, from its own newest.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trainer/device/device.h"
#include "trainer/strategy/parameter_server/service.h"

namespace trainer {

class ParameterServer final : public WorkerService {
 public:
  /// Listens; port 0: any free one. Throws ClusterError when the address cannot be had.
  ParameterServer(const PsJob& job, const TaskAddress& address, Device& device,
                  const Notice& notice);

  void run();

 private:
  bool is_finished() const override {
    return !done_.empty() && !gathering_ && active_workers() == 0;
  }
  std::string begin(const WorkerHello& hello) override;
  void serve(Session& session, FrameType type) override;
  std::string lose(int worker) override;
  void advance() override;

  std::int64_t version() const { return store_ ? store_->version() : 0; }
  ServerState state() const;

  void gather();
  bool is_current(const Session& session) const {
    return generation_ > 0 && session.request().generation == generation_;
  }
  void take_push(Session& session);
  void restart(Session& session);
  void save();
  std::vector<Session*> next_pushes();
  void update(const std::vector<Session*>& pushes);
  void answer(Session& session);
  std::int64_t slowest_clock() const;
  void report();

  Device& device_;
  std::string snapshot_folder_; ///< Folder of this server; empty: no snapshots.
  std::optional<ShardStore> store_;
  std::vector<std::int64_t> snapshots_; ///< Newest first.
  std::int64_t generation_ = 0;         ///< 0: there are no values.
  std::int64_t began_at_ = 0;           ///< Its first version.
  bool resumed_ = false;                ///< From a snapshot.
  bool gathering_ = true;
  Deadline gather_until_ = after_seconds(job_.rendezvous_timeout);

  Score totals_; ///< Of all pushes applied in this generation.
  std::int64_t late_ = 0;
  std::int64_t stale_most_ = 0;

  /// Traffic so far.
  struct Figures {
    Deadline at = Clock::now();
    std::int64_t version = 0;
    double in = 0;     ///< Bytes of gradients received,
    double out = 0;    ///< of values sent,
    double shared = 0; ///< and of both in shared memory.
  };
  Figures now_;
  Figures reported_;
};

} // namespace trainer
