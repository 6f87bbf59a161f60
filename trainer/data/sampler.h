// Which samples a rank takes, by arithmetic alone: no memory, no device.
//
// The training data is one endless stream: sample p of the stream is number p mod N of epoch p / N,
// in that epoch's random order. A step of n ranks with batch B takes the next n·B samples, rank r
// those from r·B on. So no two ranks see the same sample, every epoch holds every sample once at
// any world size, all ranks take the same number of steps, and a run's progress is one number, the
// position in the stream, which a checkpoint keeps.
//
// If the stream has an end, the last global batch holds what is left, in shares that differ by one
// row at most.
//
// If each worker has its own stream (its own files, or all files for itself), its ranks share that
// stream in the same way, and the position is the sum over all streams.
//
// Shares of a global batch are equal, one after the other in rank order, unless set_share() says
// otherwise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "trainer/data/permutation.h"

namespace trainer {

struct SamplerOptions {
  std::size_t batch_size = 64; ///< Per rank.
  int rank = 0;
  int world_size = 1;
  std::uint64_t seed = 0;
  std::uint64_t start = 0; ///< Position in the stream to begin at, over all ranks.
  std::int64_t steps = 0;  ///< Number of batches.
  std::uint64_t end = 0;   ///< Position to stop at, with a shorter last batch; 0: none.
  /// Number of streams; with several, `rank` and `world_size` count within this rank's stream.
  int streams = 1;
  std::uint64_t samples = 0; ///< Per epoch of all streams; 0: as many as there are here.
  /// Rows per step of a stream's ranks, in shares that differ by a row; 0: batch_size per rank.
  std::size_t global_batch = 0;
};

class Sampler {
 public:
  /// A rank's rows of a global batch.
  struct Share {
    std::uint64_t position = 0; ///< Of the first row, in this rank's stream.
    std::size_t rows = 0;       ///< At least one.
    std::size_t weight = 1;     ///< Of each row; 0 if nothing is left for this rank.
    std::size_t global_rows = 0;
  };
  /// Consecutive positions of one epoch.
  struct Run {
    const Permutation& order; ///< The epoch's; valid until the next call.
    std::uint64_t first;      ///< In it.
    std::size_t count;
  };

  /// Of `count` samples: each epoch in another random order, or once `in_order`.
  Sampler(std::uint64_t count, const SamplerOptions& options, bool in_order = false);

  /// The share of the next batch; none after the last.
  std::optional<Share> next();
  /// The next batch begins at `position`, over all ranks.
  void seek(std::uint64_t position) { position_ = position; }
  /// From the next batch on, this rank takes `rows` samples of each global batch, beginning with
  /// its sample number `first`. The size of the global batch does not change.
  void set_share(std::size_t first, std::size_t rows);

  /// The first of `rows` rows from `position` on, as far as its epoch goes.
  Run run(std::uint64_t position, std::size_t rows);
  /// The numbers of the samples from `position` on.
  void number(std::uint64_t position, std::span<std::uint64_t> samples);

  /// Rows per batch of all ranks of this stream.
  std::size_t stream_batch() const { return global_batch_ / streams_; }
  /// Samples that all ranks have taken, including the current batch.
  std::uint64_t position() const { return position_; }
  /// The same in epochs.
  double epochs() const { return static_cast<double>(position_) / static_cast<double>(samples_); }

 private:
  struct Part {
    std::size_t first;
    std::size_t rows;
  };
  /// An equal share of `rows` of this stream.
  Part equal_part(std::size_t rows) const;

  std::uint64_t count_;
  std::size_t rank_;
  std::size_t ranks_;
  std::size_t streams_;
  std::uint64_t seed_;
  std::uint64_t end_;
  std::uint64_t samples_;
  std::size_t global_batch_;
  bool in_order_;
  std::int64_t steps_left_;
  std::uint64_t position_;
  std::uint64_t epoch_ = 0;
  Permutation order_;
  Part part_;
};

} // namespace trainer
