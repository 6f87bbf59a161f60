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
// Snapshots: every policy.snapshot_every updates, at the same versions on every server, the newest
// two kept. Workers that find a server back at an older version ask the others to roll back to it,
// so that the job continues as if the updates since had not been; they take the same samples again.
// An asynchronous job goes on with what each server has.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "trainer/device/device.h"

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

class ParameterServer {
 public:
  /// Listens. Throws ClusterError when the address cannot be had.
  ParameterServer(const ServerOptions& options, Device& device, Notice notice);
  ~ParameterServer();
  ParameterServer(const ParameterServer&) = delete;
  ParameterServer& operator=(const ParameterServer&) = delete;

  int port() const;

  /// Serves until the last worker has said goodbye, or stop(). Throws PeerError, DataError.
  void run();

  /// From another thread: run() returns at once, without goodbyes.
  void stop() noexcept;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

} // namespace trainer
