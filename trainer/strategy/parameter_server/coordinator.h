// The coordinator of a job with parameter servers: TF_CONFIG's chief. It does not train and holds
// no values; it hands out the batches (see work_ledger.h), and knows how far the job is.
//
// Workers come and go: one whose connection closes, or that is silent for peer_timeout, is named,
// and what it had goes to another. When all are gone before the end, the coordinator waits
// rendezvous_timeout for one to come back, then fails. A job does not survive its coordinator.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <set>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "trainer/device/cpu/kernels.h"
#include "trainer/strategy/parameter_server/peers.h"
#include "trainer/strategy/parameter_server/work_ledger.h"

namespace trainer {

/// What a worker tells of the batch that it is done with; goes over the wire as it is.
struct WorkReport {
  std::int64_t version = 0;    ///< Of the values that it has now.
  std::int64_t generation = 0; ///< Likewise.
  double loss = 0;             ///< Sum over the batch.
  std::int64_t correct = 0;
  std::int64_t count = 0;     ///< 0: it has done none, or the servers restarted meanwhile.
  double input_seconds = 0;   ///< Spent on it getting input,
  double waiting_seconds = 0; ///< and waiting for servers and coordinator.
};
static_assert(sizeof(WorkReport) == 56);

struct CoordinatorOptions {
  TaskAddress address; ///< Port 0: any free one, see port().
  std::string token;
  int workers = 1;
  bool sync = true;
  nlohmann::json job; ///< What each worker must have too.
  /// The batches of the run, once the first worker has said how many samples there are.
  std::function<std::int64_t(std::int64_t samples)> batches;
  double peer_timeout = 8;
  double rendezvous_timeout = 60;
};

/// Where a job stands, after each report of a worker.
struct CoordinatorProgress {
  std::int64_t done = 0;    ///< Batches.
  std::int64_t batches = 0; ///< Of the run.
  std::int64_t samples = 0; ///< Of an epoch.
  Score totals;             ///< Of this coordinator's time.
  double input_seconds = 0; ///< Of all workers.
  double waiting_seconds = 0;
};

class Coordinator {
 public:
  using Notice = std::function<void(const std::string&)>;
  using OnProgress = std::function<void(const CoordinatorProgress&)>;

  /// Listens. Throws ClusterError when the address cannot be had.
  Coordinator(CoordinatorOptions options, Notice notice, OnProgress on_progress);

  int port() const { return peers_.port(); }

  /// Hands out work until all is done and the workers have left, or stop(). Throws PeerError.
  void run();

  /// From another thread: run() returns at once.
  void stop() noexcept {
    stopped_ = true;
    peers_.wake();
  }

 private:
  /// One worker's connection.
  struct Worker final : Peer {
    Worker(Introduction introduction, Fd link, Coordinator& coordinator)
        : Peer(std::move(introduction), std::move(link)), owner(coordinator) {}

    ReadParts body_of(const FrameHeader& header) override;
    void handle(const FrameHeader& header) override;
    std::string name() const {
      return fmt::format("worker {} ({}, pid {})", who.rank, who.host, who.pid);
    }

    Coordinator& owner;
    std::vector<std::byte> text;
    WorkReport report;
    bool greeted = false;
  };

  bool is_finished() const { return ledger_ && ledger_->is_finished() && workers_.empty(); }
  void say(const std::string& text) const { notice_("chief: " + text); }

  void greet(Worker& worker);
  void answer(Worker& worker);
  void leave(Worker& worker);
  void lose(Worker& worker, const std::string& why);
  void keep_time();
  std::vector<int> missing_workers() const;

  CoordinatorOptions options_;
  Notice notice_;
  OnProgress on_progress_;
  std::atomic<bool> stopped_{false};

  Peers<Worker> peers_;
  std::list<Worker>& workers_ = peers_.all();
  std::optional<WorkLedger> ledger_; ///< None until the first worker has come.
  CoordinatorProgress progress_;
  std::set<int> seen_;
  std::string last_lost_ = "none";
  Deadline alone_until_;
};

} // namespace trainer
