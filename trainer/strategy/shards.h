// How the flat space of a model's parameters is cut: into buckets, which travel together, and each
// bucket into chunks, one a rank, as collectives cut a buffer (collectives/collective.h).
//
// In ZeRO's stages (Rajbhandari et al., 2020, "ZeRO: Memory Optimizations Toward Training Trillion
// Parameter Models") rank r owns chunk r of every bucket, and ranks share what they would otherwise
// all hold:
//
//   1  the optimizer's moments   a bucket's gradients are reduce-scattered instead of all-reduced,
//                                each rank updates its chunk, and the parameters are all-gathered
//   2  and the gradients         each rank frees the other ranks' chunks once the bucket is summed
//   3  and the parameters        gathered unit by unit before they are used, and freed after
//
// A reduce-scatter is the first half of an all-reduce, so every stage sums in the same order, and
// with float32 on the wire gives the bits of stage 0. Bytes per rank, with P parameters, Adam and n
// ranks: stage 0 16·P; 1 8·P + 8·P/n; 2 4·P + 12·P/n; 3 16·P/n and the units in use. Floats that a
// rank sends per step, as n grows: 2·P in stages 0 to 2, 3·P in stage 3; 2·P of these are
// parameters, which travel in 16 bits where the model computes in 16 bits. Where tensors move as a
// whole (LAMB, Muon; optim/optimizer.h) their directions are all-gathered, another P: of LAMB in
// place of parameters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trainer/collectives/wire.h"
#include "trainer/device/stored_values.h"
#include "trainer/nn/tensor_table.h"

namespace trainer {

inline constexpr std::size_t k_granule = 16; ///< Floats: where an arena may be cut.

/// A bucket's size by which there is one alone.
inline constexpr std::size_t k_one_bucket = SIZE_MAX;

/// How gradients travel.
struct Buckets {
  // NOLINTNEXTLINE(google-explicit-constructor): a size in bytes is enough.
  Buckets(std::size_t bytes_, WireType wire_ = WireType::fp32) : bytes(bytes_), wire(wire_) {}
  /// Least size of a bucket in bytes of float32; 0: chosen by the model's size, bucket_floats().
  std::size_t bytes;
  WireType wire;
};

/// What ranks share instead of each holding all of it.
struct Sharding {
  int stage = 0; ///< ZeRO's: 0 to 3.
  Buckets buckets = 0;
};

/// Floats per bucket of a model with `gradients` gradients. The default is a 64th of them, so that
/// a step takes at most 64 all-reduces and the last one, which nothing hides, is short; but at
/// least 128 KiB, because the latency of a smaller all-reduce costs more than the overlap saves.
std::size_t bucket_floats(const Buckets& buckets, std::size_t gradients);

/// Where what a rank owns is while it is not used: in files in these folders, or, if they are
/// empty, in its device's memory.
struct Offload {
  std::string optimizer = {};
  std::string parameters = {};         ///< At stage 3, which shares them among ranks.
  bool optimizer_is_on_host = false;   ///< A GPU's are in the host's memory.
  bool parameters_are_on_host = false; ///< Likewise, at stage 3.

  bool is_to_files() const { return !optimizer.empty() || !parameters.empty(); }
};

/// The stage that a rank takes of the one that was asked for. One rank shares nothing, but at stage
/// 3 it has its parameters elsewhere, if they are offloaded; else it takes stage 0.
inline int stage_taken(int stage, int ranks, const Offload& offload, bool is_on_cpu) {
  const bool offloads =
      !offload.parameters.empty() || (offload.parameters_are_on_host && !is_on_cpu);
  return ranks > 1 || (stage == 3 && offloads) ? stage : 0;
}

/// Where a rank keeps its own chunks.
struct OwnChunks {
  StoredValues values;
  bool is_arena; ///< They are at their places in an arena; else without gaps.

  /// Calls body(at, range) with each of `own`, all ranges of the rank's in ascending order, and
  /// where its values begin.
  template <typename Body>
  void for_each(const std::vector<ArenaRange>& own, const Body& body) const {
    std::size_t behind = 0;
    for (const ArenaRange& range : own) {
      body(is_arena ? range.first : behind, range);
      behind += range.size();
    }
  }
};

class Shards {
 public:
  /// Cuts an arena of `floats` for `rank` of `ranks`.
  Shards(std::size_t floats, const Buckets& buckets, int rank, int ranks);

  /// In the arena's order; together they cover it. Each begins at a multiple of 16 floats.
  const std::vector<ArenaRange>& buckets() const { return buckets_; }
  /// Chunk `rank` of a bucket; may be empty.
  ArenaRange chunk(std::size_t bucket, int rank) const;
  ArenaRange own(std::size_t bucket) const { return chunk(bucket, rank_); }
  std::vector<ArenaRange> own_of_buckets() const;             ///< This rank's chunk of each bucket.
  std::vector<ArenaRange> own() const;                        ///< Those that are not empty.
  std::size_t own_floats() const { return floats_in(own()); } ///< In all of them.

  int ranks() const { return ranks_; }

 private:
  int rank_;
  int ranks_;
  std::vector<ArenaRange> buckets_;
};

} // namespace trainer
