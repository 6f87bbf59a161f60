// What the ranks of a run agree on before its first step, as their flags and data say.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "trainer/collectives/communicator.h"
#include "trainer/data/loader.h"
#include "trainer/optim/learning_rate.h"
#include "trainer/run/run_options.h"

namespace trainer {

struct RunSettings {
  std::int64_t batch_size; ///< A rank; of all passes that are accumulated.
  std::int64_t rows_at_once;
  std::array<char, 128> model; ///< --model and its shape, as text.
  std::int64_t rule;           ///< An OptimizerOptions::Rule.
  double momentum;
  double weight_decay;
  std::int64_t decays_vectors; ///< 0 or 1.
  double beta1;
  double beta2;
  double epsilon;
  double clip_norm;
  std::int64_t steps; ///< In all, of a run from its beginning.
  /// The position in the stream that the epochs end at; 0: --steps says when to stop.
  std::uint64_t epochs_end;
  std::uint64_t end;         ///< Of elastic ranks: the position in the stream to stop at, else 0.
  std::int64_t global_batch; ///< That elastic ranks keep; 0: batch_size of each.
  std::int64_t log_every;
  std::int64_t checkpoint_every;
  std::uint64_t seed;
  std::uint64_t samples;       ///< Of the training data,
  std::uint64_t data;          ///< and a digest of all data; the caller's to set.
  LearningRate learning_rate;  ///< Over samples.
  std::int64_t split_by_speed; ///< 0 or 1; a bool would leave bytes of the struct unset.
  std::int64_t timeline;
  std::int64_t wire; ///< A WireType.
  std::int64_t zero_stage;
  std::int64_t precision;      ///< A Precision;
  LossScaleOptions loss_scale; ///< and what goes with it.
  MatmulPrecision matmul_precision;
  std::int64_t bucket_bytes;    ///< Where ranks share a replica, which is cut at them, else 0;
  std::int64_t saves;           ///< likewise whether there is --checkpoint-dir, 0 or 1.
  std::int64_t one_pass;        ///< The samples are a stream: it is the run's end, too.
  std::array<char, 16> kernels; ///< Their arithmetic: others would round otherwise.

  /// Samples that a step of so many ranks takes.
  std::uint64_t global_rows(int ranks) const {
    return static_cast<std::uint64_t>(global_batch > 0 ? global_batch : batch_size * ranks);
  }

  bool operator==(const RunSettings&) const = default;
};

static_assert(sizeof(RunSettings) == sizeof(double) * 65,
              "it is broadcast, and has no unset bytes between");

RunSettings make_run_settings(const RunOptions& options, int ranks, bool is_elastic,
                              const AllSamples& samples);

/// "--seed is 1 and 0", the first thing that differs; empty: nothing does.
std::string difference(const RunSettings& mine, const RunSettings& first);

/// Collective. Where a rank's settings are not rank 0's, throws UsageError on every rank, naming
/// both and the first thing that differs.
void check_same_settings(const RunSettings& settings, Communicator& communicator);

/// Collective, of elastic ranks that go on: each takes the length of rank `source`'s run, as it may
/// know another number of ranks. Throws UsageError on a rank that differs in anything else.
void join_settings(RunSettings& settings, int source, Communicator& communicator);

} // namespace trainer
