// Which samples a rank takes, by arithmetic alone: no memory, no device.
//
// The training data is one endless stream: sample p of the stream is number p mod N of epoch p / N,
// in that epoch's random order. A step of n ranks with batch B takes the next n·B samples, rank r
// those from r·B on. So no two ranks see the same sample, every epoch holds every sample once at
// any world size, all ranks take the same number of steps, and where a run stands is one number,
// the position in the stream, which a checkpoint keeps.
//
// With an end to the stream the last global batch is as long as what is left, in shares that differ
// by one row at most.
//
// Where each worker has a stream of its own (files of its own, or all of them to itself), its ranks
// share that in the same way, and the position is the sum of all.
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
  std::uint64_t start = 0; ///< Position in the stream, of all ranks together.
  std::int64_t steps = 0;  ///< Batches to give.
  std::uint64_t end = 0;   ///< Position to stop at, with a shorter last batch; 0: none.
  /// Workers that each have a stream of their own, of which `rank` and `world_size` then are.
  int streams = 1;
  std::uint64_t samples = 0; ///< Of an epoch of all streams; 0: as many as there are here.
  /// Of a stream's ranks, in shares that differ by a row; 0: batch_size each.
  std::size_t global_batch = 0;
};

class Sampler {
 public:
  /// A rank's rows of a global batch.
  struct Share {
    std::uint64_t position = 0; ///< Of the first one, in the stream that the rank takes from.
    std::size_t rows = 0;       ///< At least one.
    std::size_t weight = 1;     ///< Of a row; 0: nothing is left for this rank.
    std::size_t global_rows = 0;
  };
  /// Positions that follow each other, all of one epoch.
  struct Run {
    const Permutation& order; ///< The epoch's; valid until the next call.
    std::uint64_t first;      ///< In it.
    std::size_t count;
  };

  /// Of `count` samples, taken in random orders, or `in_order`, once.
  Sampler(std::uint64_t count, const SamplerOptions& options, bool in_order = false);

  /// The next batch's; none behind the last.
  std::optional<Share> next();
  /// The next batch begins at `position`, which is of all ranks together.
  void seek(std::uint64_t position) { position_ = position; }
  /// From the next batch on this rank takes `rows` samples of each global batch, from number
  /// `first` of it on. The global batch stays as long as it is.
  void set_share(std::size_t first, std::size_t rows);

  /// Of so many rows from `position` on, those that are of its epoch.
  Run run(std::uint64_t position, std::size_t rows);
  /// The numbers of the samples from `position` on.
  void number(std::uint64_t position, std::span<std::uint64_t> samples);

  /// Of a whole batch: the rows of all ranks that take from this stream.
  std::size_t stream_batch() const { return global_batch_ / streams_; }
  /// Samples that all ranks have taken, the current batch's included.
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
