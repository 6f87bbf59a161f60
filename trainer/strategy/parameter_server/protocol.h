// What a worker says to a parameter server and to the coordinator, and they to it: frames
// (job/frames.h) in the byte order of their machines, which is one.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "trainer/collectives/wire.h"
#include "trainer/job/channel.h"
#include "trainer/job/shared_file.h"
#include "trainer/nn/tensor_table.h"
#include "trainer/optim/learning_rate.h"

namespace trainer {

enum class FrameType : std::uint32_t {
  hello = 1, ///< Worker: who it is, the job and the ranges that it expects. JSON.
  welcome,   ///< Server: accepted, and how it stands. JSON. Worker: how does it stand?
  refused,   ///< Server: not accepted, and why.
  begin,     ///< Worker: fields; go on in generation `extra` from the snapshot of `step`, or, where
             ///< that is -1, from the values that follow.
  gradients, ///< Worker: the next of those of its step, unless it shares memory.
  push,      ///< Worker: fields; the gradients of `step` are whole.
  parameters, ///< Server: fields, then values of version `step`, unless it shares memory.
  pull,       ///< Worker: fields; asks for parameters of version `step` or later.
  beat,       ///< Either: alive.
  goodbye,    ///< Worker: done with training.
  ask,        ///< Worker to coordinator: a WorkReport; what next?
  work,       ///< Coordinator: the number of a batch; -1: nothing is left to do.
};

/// What a frame's body begins with. Values follow range after range, as float32, gradients as the
/// hello says.
struct FrameFields {
  std::int64_t step = 0;
  double weight = 0; ///< Of a push: its samples,
  double factor = 1; ///< and what clips its gradients.
  double loss = 0;   ///< A push's own sum; of parameters: all workers' since the job's start.
  std::int64_t correct = 0;
  std::int64_t count = 0;
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
struct PsPolicy {
  bool sync = true;
  int backup_workers = 0;
  std::int64_t max_staleness = -1; ///< Steps; -1: no bound.
  LearningRate learning_rate;      ///< Over updates.
  std::int64_t snapshot_every = 0; ///< Updates; 0: never.
  /// What gradients are pushed as. 16-bit ones are rounded by the worker, in memory that it shares
  /// as well, so that a job's values do not depend on the way; the server adds them up in fp32.
  WireType gradients = WireType::fp32;
};

/// What a worker tells the coordinator of the batch that it is done with; goes as it is.
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

struct WorkerHello {
  int worker = 0;
  int workers = 1;
  PsPolicy policy = {};
  nlohmann::json job = {}; ///< What must be alike on all workers besides: seed, data digest, …
  std::vector<ArenaRange> ranges = {}; ///< That this server is to hold.
  std::size_t arena = 0;               ///< Floats of the whole model.
  SharedFile::Ticket memory = {};      ///< Arena of gradients, then of parameters; fd -1: none.
};

/// How a server stands.
///
/// Servers go on together: whenever one of them has lost its values, all begin another generation,
/// at the newest snapshot that all have (at the first values, where the job is new). Workers find
/// out and say so, and what they pushed in the generation before is dropped.
struct ServerWelcome {
  std::int64_t version = 0;
  std::int64_t generation = 0;         ///< 0: it has no values.
  bool has_moved = false;              ///< There were updates in this generation.
  std::vector<std::int64_t> snapshots; ///< Versions, newest first.
  bool shares_memory = false;
};

std::string hello_text(const WorkerHello& hello);
/// Throws LinkError naming what is wrong.
WorkerHello parse_hello(const std::string& text);

std::string welcome_text(const ServerWelcome& welcome);
ServerWelcome parse_welcome(const std::string& text);

/// The first thing that two jobs' settings differ in, "seed: 1 and 2"; none: they are alike.
std::optional<std::string> first_difference(const nlohmann::json& x, const nlohmann::json& y);

/// The first thing that two workers' jobs differ in; none: they are alike.
std::optional<std::string> difference(const WorkerHello& a, const WorkerHello& b);

/// What a snapshot must agree with.
std::string job_text(const WorkerHello& hello);

/// Where the two arenas of a worker's shared memory begin, in bytes, and how long it is.
struct SharedLayout {
  explicit SharedLayout(std::size_t arena);
  std::size_t gradients;
  std::size_t parameters;
  std::size_t size;
};

inline constexpr std::size_t k_longest_text = std::size_t{1} << 20; ///< Of hello, welcome, refused.

[[noreturn]] inline void not_due() { throw LinkError("it sent a frame that was not due"); }
[[noreturn]] inline void wrong_length() {
  throw LinkError("it sent a frame of an unexpected length");
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

inline std::string text_of(std::span<const std::byte> body) {
  return {reinterpret_cast<const char*>(body.data()), body.size()};
}
inline std::span<const std::byte> bytes_of_text(const std::string& text) {
  return std::as_bytes(std::span(text));
}

} // namespace trainer
