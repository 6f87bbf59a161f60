// The operations that ranks carry out together, on any transport.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trainer/collectives/range.h"
#include "trainer/collectives/wire.h"
#include "trainer/job/collective_log.h"

namespace trainer {

class Event;

struct Collective {
  /// In the first three, chunk r of the range belongs to rank r: all_reduce is reduce_scatter and
  /// then all_gather, and gives the same bits.
  enum class Kind : std::uint32_t {
    all_reduce = 1, ///< The sum over ranks, on every rank.
    reduce_scatter, ///< Its own chunk of the sum; the rest of its range is undefined afterwards.
    all_gather,     ///< Each rank's own chunk, on every rank.
    broadcast,
    barrier,
    allocate,
    // Used only between the ranks of a host and their leader:
    gather, ///< Each rank's own chunk, on the root.
    scatter ///< Its own chunk of the root's range.
  };
  Kind kind = Kind::barrier;
  Range range = {};
  int root = 0; ///< For broadcast, gather, scatter: the root's position among the participants.
  std::string name = {};
  WireType wire = WireType::fp32; ///< Type on the wire, for float32.
  int pieces = 1;                 ///< Number of pieces of each rank's chunk, which others share.
  /// Position that owns each chunk; below 0: none of these. Null: position c owns chunk c.
  const std::vector<int>* owners = nullptr;
  /// Of a range in a device's memory: it also begins after this event. Read by start() alone.
  const Event* after = nullptr;

  std::string text() const; ///< "all_reduce 'grad1' of 4096 bytes"
  Call call() const;        ///< For logs.
};

/// Throws Error where no transport can carry it out: bytes cannot be added up.
void check_types(const Collective& collective);

/// Ranges are cut into one chunk a rank; chunk c of a sum is added up in the ring's order, ranks
/// c+1, c+2, …, c, whatever carries it, so that every transport gives the same bits. Where others
/// own the chunks, that of owner o is added up from o+1 round to o.
/// All chunks but the last ones have the same length, a multiple of 16 values (float32's cache
/// line) for each piece.
class Chunks {
 public:
  Chunks(std::size_t count, int ranks, int pieces = 1);
  Chunks(const Collective& collective, int ranks);

  std::size_t length() const { return length_; } ///< Values in a chunk.
  int number() const { return number_; }
  int owner(int chunk) const {
    return owners_ == nullptr ? chunk : (*owners_)[static_cast<std::size_t>(chunk)];
  }
  std::size_t begin(int chunk) const;
  std::size_t size(int chunk) const { return begin(chunk + 1) - begin(chunk); }
  int holding(std::size_t value) const { return static_cast<int>(value / length_); }
  Range of(const Range& range, int chunk) const { return range.part(begin(chunk), size(chunk)); }

  /// The part of a range of so many values that a position owns, in order; adjacent parts are
  /// merged.
  struct Part {
    std::size_t first = 0;
    std::size_t count = 0;
  };
  std::vector<Part> owned_by(int position) const;

 private:
  std::size_t count_;
  int number_;
  std::size_t length_;
  const std::vector<int>* owners_ = nullptr;
};

} // namespace trainer
