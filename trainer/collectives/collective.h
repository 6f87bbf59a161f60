// What ranks ask of each other together, whatever carries it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trainer/collectives/wire.h"
#include "trainer/job/collective_log.h"

namespace trainer {

struct Collective {
  /// The first three work on floats, of which chunk r is rank r's: all_reduce is reduce_scatter and
  /// then all_gather, and gives the same bits.
  enum class Kind : std::uint32_t {
    all_reduce = 1, ///< The sum over ranks, on every rank.
    reduce_scatter, ///< Its own chunk of the sum; the rest of its buffer is then worth nothing.
    all_gather,     ///< Each rank's own chunk, on every rank.
    broadcast,
    barrier,
    allocate
  };
  Kind kind = Kind::barrier;
  std::span<std::byte> bytes; ///< Of floats for the first three.
  int root = 0;               ///< For broadcast: position among those that take part.
  std::string name;
  WireType wire = WireType::fp32; ///< What travels, of floats.

  std::string text() const; ///< "all_reduce 'grad1' of 4096 bytes"
  Call call() const;        ///< For logs.
};

/// Buffers are cut into one chunk a rank; chunk c of a sum is added up in the ring's order, ranks
/// c+1, c+2, …, c, whatever carries it, so that every transport gives the same bits.
/// All chunks but the last ones have the same length, a multiple of a cache line.
struct Chunks {
  std::size_t count;  ///< Floats in the buffer.
  std::size_t length; ///< Floats in a chunk.

  Chunks(std::size_t count, int ranks);
  std::size_t begin(int chunk) const;
  std::size_t size(int chunk) const { return begin(chunk + 1) - begin(chunk); }
  /// Of a buffer of `count` floats.
  std::span<float> of(std::span<float> buffer, int chunk) const {
    return buffer.subspan(begin(chunk), size(chunk));
  }
};

/// What a carrier without a better way makes of an all_gather: a broadcast from each of `ranks`, of
/// which this one is `self`. Rounds this rank's own chunk to what travels.
std::vector<Collective> gather_by_broadcasts(const Collective& gather, int self, int ranks);

} // namespace trainer
