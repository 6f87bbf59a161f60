// How the flat space of a model's parameters is cut: into buckets, which travel together, and each
// bucket into chunks, one a rank, as collectives cut a buffer (collectives/collective.h).
//
// In ZeRO's stages (Rajbhandari et al., 2020, "ZeRO: Memory Optimizations Toward Training Trillion
// Parameter Models") rank r owns chunk r of every bucket, and ranks share what they would otherwise
// all hold:
//
//   1  the optimizer's moments   a bucket's gradients are reduce-scattered instead of all-reduced,
//                                each rank updates its chunk, and the parameters are all-gathered
//   2  and the gradients         what is not a rank's own is given back once the bucket is summed
//   3  and the parameters        gathered unit by unit before they are used, and given back after
//
// A reduce-scatter is the first half of an all-reduce, so every stage sums in the same order, and
// with float32 on the wire has the bits of stage 0. Bytes that a rank holds, of P parameters with
// Adam on n ranks: 16·P; stage 1 8·P + 8·P/n; 2 4·P + 12·P/n; 3 16·P/n and the units in use. Floats
// that it sends a step, as n grows: 2·P in stages 0 to 2, 3·P in stage 3.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "trainer/collectives/wire.h"
#include "trainer/nn/tensor_table.h"

namespace trainer {

inline constexpr std::size_t k_granule = 16; ///< Floats: where an arena may be cut.

/// How gradients travel.
struct Buckets {
  // NOLINTNEXTLINE(google-explicit-constructor): a number of bytes says it.
  Buckets(std::size_t bytes_, WireType wire_ = WireType::fp32) : bytes(bytes_), wire(wire_) {}
  /// At least, of float32, in a bucket; 0: as many as the model has use for, see bucket_floats().
  std::size_t bytes;
  WireType wire;
};

/// What ranks share instead of each holding all of it.
struct Sharding {
  int stage = 0; ///< ZeRO's: 0 to 3.
  Buckets buckets = 0;
};

/// Gradients in a bucket of a model that has `gradients` of them. By itself a 64th, so that a step
/// of any model is at most 64 all-reduces and the last one, which nothing hides, is short; but 128
/// KiB at least, below which an all-reduce's latency costs more than what it hides.
std::size_t bucket_floats(const Buckets& buckets, std::size_t gradients);

/// Folders in whose files lies what a rank owns, and takes memory only while it is used; empty: in
/// memory.
struct Offload {
  std::string optimizer = {};
  std::string parameters = {}; ///< At stage 3, where ranks share them.
};

class Shards {
 public:
  /// An arena of `floats` of which `rank` of `ranks` owns a part. One rank: one bucket.
  Shards(std::size_t floats, const Buckets& buckets, int rank, int ranks);

  /// In the arena's order, which they fill. Each begins at a multiple of 16 floats.
  const std::vector<ArenaRange>& buckets() const { return buckets_; }
  /// Chunk `rank` of a bucket; may be empty.
  ArenaRange chunk(std::size_t bucket, int rank) const;
  ArenaRange own(std::size_t bucket) const { return chunk(bucket, rank_); }
  /// All of them that are not empty.
  std::vector<ArenaRange> own() const;
  std::size_t own_floats() const { return floats_in(own()); } ///< In all of them.

  int ranks() const { return ranks_; }

 private:
  int rank_;
  int ranks_;
  std::vector<ArenaRange> buckets_;
};

} // namespace trainer
