// How collectives are carried: what shared memory, TCP and their combination have in common.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "trainer/collectives/wire.h"

namespace trainer {

struct Collective {
  enum class Kind : std::uint32_t { all_reduce = 1, broadcast, barrier, allocate };
  Kind kind = Kind::barrier;
  std::span<std::byte> bytes; ///< Of floats for all_reduce.
  int root = 0;               ///< For broadcast: position among those that take part.
  std::string name;
  WireType wire = WireType::fp32; ///< Of an all_reduce, what travels.

  std::string text() const; ///< "all_reduce 'grad1' of 4096 bytes"
};

/// Carries out one collective after the other, all of it within a call. One call at a time.
class Carrier {
 public:
  virtual ~Carrier() = default;
  virtual std::string describe() const = 0;
  /// Of an all_reduce of registered memory.
  virtual Route route(std::size_t bytes, WireType wire) const = 0;
  virtual std::span<float> allocate(std::size_t count) = 0;
  /// Returns when it is done on this rank. Throws PeerError.
  virtual void carry_out(Collective collective) = 0;
};

/// Has several collectives under way, numbered from 0 in the order of start(). All calls come from
/// one thread.
class Transport : public Carrier {
 public:
  /// After all that were started before it.
  void carry_out(Collective collective) override { finish(start(std::move(collective))); }
  virtual std::uint64_t start(Collective collective) = 0;
  /// Returns when this collective and all before it are done on this rank. Throws PeerError.
  virtual void finish(std::uint64_t number) = 0;
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
};

} // namespace trainer
