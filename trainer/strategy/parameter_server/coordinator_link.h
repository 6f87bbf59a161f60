// A worker's connection to the coordinator.
#pragma once

#include <mutex>
#include <optional>

#include "trainer/strategy/parameter_server/server_link.h"

namespace trainer {

struct CoordinatorLinkOptions {
  std::string address; ///< host:port
  std::string token;
  int worker = 0;
  int workers = 1;
  nlohmann::json job;       ///< Must be the coordinator's.
  std::int64_t samples = 0; ///< Of an epoch.
  double peer_timeout = 8;
  double rendezvous_timeout = 60;
};

class CoordinatorLink {
 public:
  /// Connects. Throws UsageError for what is no address, PeerError when the coordinator cannot be
  /// reached, ClusterError when it refuses this worker.
  explicit CoordinatorLink(const CoordinatorLinkOptions& options);

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
