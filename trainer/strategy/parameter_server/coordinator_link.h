// A worker's connection to the coordinator.
#pragma once

#include <mutex>
#include <optional>

#include "trainer/job/beat.h"
#include "trainer/strategy/parameter_server/channel.h"
#include "trainer/strategy/parameter_server/coordinator.h"

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

class CoordinatorLink final : public FrameHandler {
 public:
  /// Connects. Throws UsageError for what is no address, PeerError when the coordinator cannot be
  /// reached, ClusterError when it refuses this worker.
  explicit CoordinatorLink(CoordinatorLinkOptions options);
  ~CoordinatorLink() override;
  CoordinatorLink(const CoordinatorLink&) = delete;
  CoordinatorLink& operator=(const CoordinatorLink&) = delete;

  /// The next batch to train on; none: nothing is left. Throws PeerError when the coordinator is
  /// gone.
  std::optional<std::int64_t> next(const WorkReport& report);
  void goodbye();

  double seconds_waiting() const { return seconds_waiting_; }

  ReadParts payload_of(const FrameHeader& header) override;
  void handle(const FrameHeader& header) override;

 private:
  enum class Due { nothing, welcome, work };

  std::string name() const;
  void meet(Fd link, Deadline deadline);
  void await(Deadline deadline);

  CoordinatorLinkOptions options_;
  TaskAddress where_;
  double seconds_waiting_ = 0;

  std::mutex mutex_; ///< Guards what follows; alive_ uses it while this rank computes.
  std::optional<Channel> channel_;
  Due due_ = Due::nothing;
  std::vector<std::byte> text_;
  std::string refused_;
  std::int64_t batch_ = -1;
  std::optional<Beat> alive_; ///< Last: it uses the others.
};

} // namespace trainer
