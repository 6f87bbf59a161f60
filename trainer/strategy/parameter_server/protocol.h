// The messages between workers, parameter servers and the coordinator: frames (job/frames.h) in the
// byte order of the machines, which must be the same. A worker has one request pending at a time;
// the answer is the state of the server.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "trainer/collectives/wire.h"
#include "trainer/device/kernels.h"
#include "trainer/job/channel.h"
#include "trainer/job/shared_file.h"
#include "trainer/run/run_settings.h"
#include "trainer/strategy/shards.h"

namespace trainer {

/// Values follow range after range, as float32, gradients as the hello says.
enum class FrameType : std::uint32_t {
  hello = 1, ///< Worker: a WorkerHello. Answered by `state`, as request 0.
  refused,   ///< Server: not accepted, and why.
  heartbeat, ///< Either: alive.
  goodbye,   ///< Worker: done with training.
  gradients, ///< Worker: the next part of a step's gradients, unless it shares memory.
  // A worker's Request each:
  ask_state,
  begin,      ///< Begin a generation from the snapshot of `step`, or, if that is -1, from the
              ///< values that follow. Not answered.
  push,       ///< The gradients of `step` are complete. Answered by `parameters`.
  pull,       ///< Asks for `parameters` of version `step` or later.
  next_batch, ///< To the coordinator: a batch is done; which is next?
  // A ServerState each:
  state,
  parameters, ///< Then values, unless the worker shares memory.
};

/// How pushes become updates; alike on all ranks of a job.
///
/// sync:  an update averages the gradients that all workers computed from the same version. With
///        b backup workers it takes the first n-b of n; the others' gradients of that version are
///        dropped when they come, as tf.train.SyncReplicasOptimizer does. Each server takes the
///        first that reach it whole.
/// async: every push is an update. With a staleness bound of s, a worker's next values are held
///        back while it is more than s steps ahead of the slowest worker: stale synchronous
///        parallel, Ho et al., "More effective distributed ML via a stale synchronous parallel
///        parameter server" (NIPS 2013).
///
/// 16-bit gradients are rounded by the worker, in memory that it shares as well, so that a job's
/// values do not depend on the way; the server adds them up in fp32.
struct PsPolicy {
  std::int64_t sync = 1; ///< 0 or 1.
  std::int64_t backup_workers = 0;
  std::int64_t max_staleness = -1; ///< Steps; -1: no bound.
  std::int64_t snapshot_every = 0; ///< Updates; 0: never.

  bool is_sync() const { return sync != 0; }
};

/// Sent as it is in memory.
struct WorkerHello {
  std::int64_t worker = 0;
  std::int64_t workers = 1;
  std::int64_t server = 0; ///< Number of the receiving server,
  std::int64_t servers = 1;
  std::uint64_t arena = 0; ///< Floats of the whole model.
  PsPolicy policy = {};
  RunSettings settings = {};      ///< A learning-rate update is an update of the servers.
  SharedFile::Ticket memory = {}; ///< Of SharedArenas; fd -1: none.

  WireType gradients() const { return static_cast<WireType>(settings.wire); }
  /// The ranges that this server holds: those that rank `server` of `servers` owns.
  std::vector<ArenaRange> ranges() const {
    return Shards(arena, servers > 1 ? 0 : k_one_bucket, static_cast<int>(server),
                  static_cast<int>(servers))
        .own();
  }
};
static_assert(offsetof(WorkerHello, memory) == 74 * sizeof(std::int64_t),
              "it has no unset bytes between");

/// Sent as it is in memory.
struct Request {
  std::int64_t number = 0;     ///< Repeated in the answer.
  std::int64_t generation = 0; ///< Of the worker. Requests of an older generation than that of the
                               ///< server are dropped.
  std::int64_t step = 0;       ///< Of next_batch: the version of its values.
  std::int64_t version = 0;    ///< Of a push: that of the server's values which it has,
  double weight = 0;           ///< its samples,
  double factor = 1;           ///< what clips its gradients,
  Score score = {};            ///< and what they scored. Of next_batch: empty where the worker has
                               ///< done none, or the servers restarted meanwhile.
  double input_seconds = 0;    ///< Of next_batch: spent on it getting input,
  double waiting_seconds = 0;  ///< and waiting for servers and coordinator.
};
static_assert(sizeof(Request) == 88);

inline constexpr std::size_t k_snapshots_kept = 2;

/// Sent as it is in memory; the coordinator sets only request and batch.
///
/// Servers go on together: whenever one of them has lost its values, all begin another generation,
/// at the newest snapshot that all have (at the first values, where the job is new). A server that
/// begins one sends all its workers its state.
struct ServerState {
  std::int64_t request = -1; ///< The request answered; -1: none.
  std::int64_t version = 0;
  std::int64_t generation = 0; ///< 0: the server has no values.
  std::int64_t has_moved = 0;  ///< Nonzero if there were updates in this generation.
  std::int64_t shares_memory = 0;
  std::array<std::int64_t, k_snapshots_kept> snapshots = {-1, -1}; ///< Newest first; -1: none.
  Score totals = {};              ///< Of all workers' pushes in this generation.
  std::int64_t first_worker = -1; ///< Lowest worker that is connected or done.
  std::int64_t batch = -1;        ///< Number of the next batch; -1: nothing is left.
};
static_assert(sizeof(ServerState) == 96);

/// Both arenas of a worker's model in memory that servers of its host share.
class SharedArenas {
 public:
  static std::size_t file_size(std::size_t floats);

  SharedArenas() = default;
  /// Maps a file of that size. Throws Error.
  SharedArenas(const SharedFile& file, std::size_t floats);

  explicit operator bool() const noexcept { return mapping_.size() > 0; }
  std::span<float> gradients() const { return gradients_; }
  std::span<float> parameters() const { return parameters_; }
  /// All of it.
  std::span<std::byte> memory() const { return {mapping_.data(), mapping_.size()}; }

 private:
  SharedFile::Mapping mapping_;
  std::span<float> gradients_;
  std::span<float> parameters_;
};

/// Throws LinkError if a hello has impossible values.
void check(const WorkerHello& hello);

/// The first thing that two workers' jobs differ in, "--seed is 1 and 2"; empty: they are alike.
std::string difference(const WorkerHello& a, const WorkerHello& b);

/// What must equal that of a snapshot.
std::string job_text(const WorkerHello& hello);

inline constexpr std::size_t k_longest_text = std::size_t{1} << 20; ///< Of refused.

[[noreturn]] inline void unexpected_message() { throw LinkError("it sent an unexpected message"); }
[[noreturn]] inline void wrong_length() {
  throw LinkError("it sent a message of unexpected length");
}

} // namespace trainer
