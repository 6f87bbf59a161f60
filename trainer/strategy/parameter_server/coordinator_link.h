// A worker's connection to the coordinator.
#pragma once

#include <mutex>
#include <optional>

#include "trainer/strategy/parameter_server/server_link.h"

namespace trainer {

class CoordinatorLink {
 public:
  /// Connects to the first of `servers`; the job has the samples of an epoch besides what must be
  /// the coordinator's. Throws UsageError for what is no address, PeerError when the coordinator
  /// cannot be reached, ClusterError when it refuses this worker.
  explicit CoordinatorLink(const ClientOptions& options);

  /// The next batch to train on; none: nothing is left. Throws PeerError when the coordinator is
  /// gone.
  std::optional<std::int64_t> next(const WorkReport& report);
  void goodbye();

  double seconds_waiting() const { return seconds_waiting_; }

 private:
  double peer_timeout_;
  double seconds_waiting_ = 0;
  std::mutex mutex_; ///< Guards the link; alive_ uses it while this rank computes.
  ParameterClient::Server link_;
  std::optional<Beat> alive_; ///< Last: it uses the others.
};

} // namespace trainer
