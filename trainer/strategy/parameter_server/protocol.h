// What a worker says to a parameter server and to the coordinator, and they to it: frames
// (job/frames.h) in the byte order of their machines, which is one.
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

enum class FrameType : std::uint32_t {
  hello = 1, ///< Worker: a WorkerHello.
  welcome,   ///< Server: accepted; a ServerWelcome. Worker: how does it stand?
  refused,   ///< Server: not accepted, and why.
  begin,     ///< Worker: fields; go on in generation `extra` from the snapshot of `step`, or, where
             ///< that is -1, from the values that follow.
  gradients, ///< Worker: the next of those of its step, unless it shares memory.
  push,      ///< Worker: fields; the gradients of `step` are whole.
  parameters, ///< Server: fields, then values of version `step`, unless it shares memory.
  pull,       ///< Worker: fields; asks for parameters of version `step` or later.
  heartbeat,  ///< Either: alive.
  goodbye,    ///< Worker: done with training.
  ask,        ///< Worker to coordinator: a WorkReport; what next?
  work,       ///< Coordinator: the number of a batch; -1: nothing is left to do.
};

/// What a frame's body begins with. Values follow range after range, as float32, gradients as the
/// hello says.
struct FrameFields {
  std::int64_t step = 0;
  double weight = 0;        ///< Of a push: its samples,
  double factor = 1;        ///< and what clips its gradients.
  Score score = {};         ///< A push's own; of parameters: all workers' since the job's start.
  std::int64_t extra = 0;   ///< Of a push: the version before; of parameters: the first worker that
                            ///< is there or done.
  std::int64_t request = 0; ///< Of a push or pull, and of the parameters that answer it.
};
static_assert(sizeof(FrameFields) == 64);

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

/// What a worker tells the coordinator of the batch that it is done with; goes as it is.
struct WorkReport {
  std::int64_t version = 0;    ///< Of the values that it has now.
  std::int64_t generation = 0; ///< Likewise.
  Score score = {};           ///< Of nothing: it has done none, or the servers restarted meanwhile.
  double input_seconds = 0;   ///< Spent on it getting input,
  double waiting_seconds = 0; ///< and waiting for servers and coordinator.
};
static_assert(sizeof(WorkReport) == 56);

/// Goes as it is.
struct WorkerHello {
  std::int64_t worker = 0;
  std::int64_t workers = 1;
  std::int64_t server = 0; ///< To which it goes,
  std::int64_t servers = 1;
  std::uint64_t arena = 0; ///< Floats of the whole model.
  PsPolicy policy = {};
  RunSettings settings = {};      ///< Their learning rate's update is one of the servers'.
  SharedFile::Ticket memory = {}; ///< Arena of gradients, then of parameters; fd -1: none.

  WireType gradients() const { return static_cast<WireType>(settings.wire); }
  /// That this server is to hold: as rank `server` of `servers` owns them.
  std::vector<ArenaRange> ranges() const {
    return Shards(arena, 0, static_cast<int>(server), static_cast<int>(servers)).own();
  }
};

inline constexpr std::size_t k_snapshots_kept = 2;

/// How a server stands; goes as it is.
///
/// Servers go on together: whenever one of them has lost its values, all begin another generation,
/// at the newest snapshot that all have (at the first values, where the job is new). Workers find
/// out and say so, and what they pushed in the generation before is dropped.
struct ServerWelcome {
  std::int64_t version = 0;
  std::int64_t generation = 0; ///< 0: it has no values.
  std::int64_t has_moved = 0;  ///< There were updates in this generation.
  std::int64_t shares_memory = 0;
  std::array<std::int64_t, k_snapshots_kept> snapshots = {-1, -1}; ///< Newest first; -1: none.
};

/// Throws LinkError where a worker's hello says what cannot be.
void check(const WorkerHello& hello);

/// The first thing that two workers' jobs differ in, "--seed is 1 and 2"; empty: they are alike.
std::string difference(const WorkerHello& a, const WorkerHello& b);

/// What a snapshot must agree with.
std::string job_text(const WorkerHello& hello);

/// Where the two arenas of a worker's shared memory begin, in bytes, and how long it is.
struct SharedLayout {
  explicit SharedLayout(std::size_t arena);
  std::size_t gradients;
  std::size_t parameters;
  std::size_t size;
};

inline constexpr std::size_t k_longest_text = std::size_t{1} << 20; ///< Of refused.

static_assert(offsetof(WorkerHello, memory) == 73 * sizeof(std::int64_t),
              "it has no unset bytes between");

[[noreturn]] inline void not_due() { throw LinkError("it sent a message that was not due"); }
[[noreturn]] inline void wrong_length() {
  throw LinkError("it sent a message of unexpected length");
}

/// Room in `text` for a frame of no more than `longest` bytes. Throws LinkError.
inline ReadParts room_for(const FrameHeader& header, std::vector<std::byte>& text,
                          std::size_t longest = k_longest_text) {
  if (header.size > longest) {
    wrong_length();
  }
  text.resize(header.size);
  return {text};
}

} // namespace trainer
