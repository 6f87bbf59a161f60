// A worker's side of the parameter servers: pushes gradients, waits for the values that follow.
//
// Of n servers, server i has what rank i of n owns where ranks share a replica (strategy/shards.h):
// a chunk of each bucket, so that all have as much of what backward finishes first as of the rest.
//
// The model's arenas of parameters and gradients are the client's; where a server is on this host
// it reads and writes them in place, through shared memory, and only headers travel. For a GPU they
// are pinned; if it cannot pin shared memory, the values travel.
//
// A server that is gone or silent for peer_timeout is named by a notice and waited for, at most
// rendezvous_timeout. When one has lost its values meanwhile, this worker has all servers restart
// from the newest snapshot that all have (protocol.h: generations; async: that one from its own),
// and step() says at which step to go on.
#pragma once

#include <list>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trainer/device/buffer.h"
#include "trainer/device/cpu/kernels.h"
#include "trainer/device/device.h"
#include "trainer/job/heartbeat.h"
#include "trainer/strategy/parameter_server/job.h"

namespace trainer {

class ParameterClient {
 public:
  /// Makes the arenas: `count` floats each, pinned for `device` if that is a GPU; null: for the
  /// CPU. `self`: all but what is about one server, and the memory. Connects nothing yet. The
  /// device outlives it. Throws Error, UsageError.
  ParameterClient(PsJob job, const WorkerHello& self, std::size_t count, Notice notice,
                  Device* device = nullptr);
  ~ParameterClient();
  ParameterClient(const ParameterClient&) = delete;
  ParameterClient& operator=(const ParameterClient&) = delete;

  std::span<float> parameters() const { return parameters_; }
  std::span<float> gradients() const { return gradients_; }
  std::size_t servers() const { return job_.task.servers.size(); }

  /// "2 parameter servers (h0:1, h1:2), 1 by shared memory"
  std::string describe() const;

  bool has_chief() const { return !job_.task.chief.empty(); }
  /// Throws PeerError where it cannot be reached, ClusterError where it refuses this worker.
  void meet_chief();
  /// The next batch to train on, as the chief says; none: nothing is left. Throws PeerError when it
  /// is gone.
  std::optional<std::int64_t> next(const Request& report);

  /// Connects to all servers and sends them parameters(), unless they have values already, which
  /// parameters() then holds. Returns the step to begin with. Throws PeerError naming the servers
  /// that cannot be reached, ClusterError if one refuses this worker.
  std::int64_t connect();

  /// Whether any server is without shared memory with this worker.
  bool sends_gradients() const;
  /// The first `count` of gradients() are final: they are sent while the rest is computed. With the
  /// same count again, sends on what the connections did not take.
  void final(std::size_t count);

  /// Describes the values in parameters().
  struct Values {
    std::int64_t step = 0; ///< To go on with; sync: the values' version, an earlier one than was
                           ///< pushed where the servers restarted.
    Score totals;          ///< Over all workers' pushes so far, as server 0 counts them.
  };
  const Values& values() const { return values_; }

  /// Pushes gradients(), the mean over `samples` (0: as many as were scored), computed from the
  /// values of `step`, to be multiplied by `factor` before they are added up, and waits for the
  /// values that follow; parameters() holds them. In an asynchronous job `step` is this worker's
  /// own count. Throws PeerError, ClusterError.
  Values step(std::int64_t step, const Score& score, std::size_t samples = 0, double factor = 1);

  /// Whether this worker is the first of those that are there or done: it says how the job went,
  /// by the newest values, which parameters() then holds.
  bool is_first();

  /// Generation of the values; it grows with each restart of the servers.
  std::int64_t generation() const { return generation_; }

  /// Says goodbye to the servers: this worker has finished.
  void goodbye();

  double seconds_waiting() const { return seconds_waiting_; }

  class Server;

 private:
  void make_arenas(std::size_t count, Device* device);
  void dial(Server& server);
  void await(std::list<Server>& asked, std::int64_t generation = INT64_MAX);
  void ask_all(FrameType type);
  void join();
  void begin();
  std::int64_t newest_common() const;
  void push(std::int64_t version);
  void pull_newest();

  PsJob job_;
  WorkerHello self_;
  Notice notice_;
  SharedFile memory_;
  SharedArenas arenas_;
  Buffer pinned_ = Buffer(0); ///< The shared memory, as a GPU's copies know it.
  Buffer own_ = Buffer(0);
  std::span<float> parameters_;
  std::span<float> gradients_;
  std::vector<std::uint16_t> halves_; ///< Outgoing gradients in 16 bits.
  double seconds_waiting_ = 0;
  Values values_;

  std::mutex mutex_; ///< Guards the servers, which alive_ uses while this rank computes or waits.
  std::list<Server> servers_;
  std::list<Server> chief_;         ///< Empty, or one.
  const Server* dialled_ = nullptr; ///< Only the thread that dials it may touch it.
  Request last_push_;
  std::int64_t generation_ = 0;    ///< 0: none has begun.
  std::optional<Heartbeat> alive_; ///< Last: it uses the others.
};

} // namespace trainer
