// What a worker and a parameter server tell each other when they meet, as JSON.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "trainer/collectives/wire.h"
#include "trainer/job/shared_file.h"
#include "trainer/optim/learning_rate.h"
#include "trainer/strategy/parameter_server/partition.h"

namespace trainer {

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

struct WorkerHello {
  int worker = 0;
  int workers = 1;
  PsPolicy policy;
  nlohmann::json job; ///< What must be alike on all workers besides: seed, data digest, …
  std::vector<ArenaRange> ranges; ///< That this server is to hold.
  std::size_t arena = 0;          ///< Floats of the whole model.
  SharedFile::Ticket memory;      ///< Arena of gradients, then of parameters; fd -1: none.
};

struct ServerWelcome {
  std::int64_t version = 0;
  std::int64_t incarnation = 0; ///< A random number a process.
  bool has_values = false;      ///< False: the worker is to send the first ones.
  bool resumed = false;         ///< From a snapshot, with no update since.
  bool shares_memory = false;
};

std::string hello_text(const WorkerHello& hello);
/// Throws LinkError naming what is wrong.
WorkerHello parse_hello(const std::string& text);

std::string welcome_text(const ServerWelcome& welcome);
ServerWelcome parse_welcome(const std::string& text);

/// The first thing that two workers' jobs differ in, "seed: 1 and 2"; none: they are alike.
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

} // namespace trainer
