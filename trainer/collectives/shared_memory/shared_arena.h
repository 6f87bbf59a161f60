// The layout of the shared file's first part: what ranks of one host coordinate by, and the slots
// through which ordinary buffers pass. All zeros is its valid first state.
//
// Everything that several ranks touch is a sequentially consistent atomic on a cache line of its
// writers; the wait below depends on that order.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>

#include "trainer/collectives/transport.h"
#include "trainer/job/health.h"
#include "trainer/job/shared_file.h"

namespace trainer {

inline constexpr std::size_t k_ring_entries = 64; ///< Collectives that may be under way at once.
inline constexpr std::size_t k_slots = 4;         ///< Staging slots a rank: three stages overlap.
static_assert(k_slots >= 3);
inline constexpr std::size_t k_slot_bytes = 512UL * 1024;
inline constexpr std::size_t k_cache_line = 64;

/// A rank's description of a collective that it has started. Must be the same on all ranks.
struct Posted {
  static constexpr std::int32_t k_ordinary = -1;

  Collective::Kind kind = Collective::Kind::barrier;
  std::int32_t root = 0;
  std::uint64_t bytes = 0;
  std::int32_t region = k_ordinary; ///< Number of the allocation that the buffer lies in,
  WireType wire = WireType::fp32;
  std::uint64_t offset = 0; ///< and its offset there, in bytes.
  DType dtype = DType::u8;
  std::int32_t pieces = 1;
  std::array<char, 48> name{};

  bool operator==(const Posted&) const = default;
  std::string text() const;
};

/// A collective under way. The generation counts the uses of the entry; claims carry it, so that a
/// rank that comes late takes nothing from the entry's next use.
struct alignas(k_cache_line) Entry {
  std::atomic<std::uint64_t> claim;     ///< Generation << 32 | next block to be taken.
  std::atomic<std::uint32_t> arrived;   ///< Ranks that have posted.
  std::atomic<std::uint32_t> done;      ///< Blocks done.
  std::atomic<std::uint64_t> completed; ///< Generations completed.
};

/// A rank's progress in the pieces of ordinary buffers, counted over all collectives.
struct alignas(k_cache_line) Stages {
  std::atomic<std::uint64_t> copied_in;  ///< A
  std::atomic<std::uint64_t> reduced;    ///< B
  std::atomic<std::uint64_t> copied_out; ///< C
};

class SharedArena {
 public:
  static std::size_t size(int ranks); ///< Bytes of file, the nonce's page included.

  SharedArena(const SharedFile& file, int ranks);

  Entry& entry(std::uint64_t number) const { return entries_[number % k_ring_entries]; }
  Posted& posted(std::uint64_t number, int position) const {
    return posted_[(number % k_ring_entries) * ranks_ + static_cast<std::size_t>(position)];
  }
  Stages& stages(int position) const { return stages_[position]; }
  std::byte* slot(int position, std::uint64_t piece) const {
    return slots_ + (static_cast<std::size_t>(position) * k_slots + piece % k_slots) * k_slot_bytes;
  }

  /// Call after a store for which others may wait.
  void signal() const;

  /// Returns when `ready()`, which may only become true by stores that signal() follows.
  /// Throws PeerError.
  template <typename Ready>
  void wait_until(Health& health, Ready ready) const {
    for (int spin = 0; spin < spins_; ++spin) {
      if (ready()) {
        return;
      }
      pause();
    }
    while (!ready()) {
      sleepers_->fetch_add(1);
      const std::uint32_t seen = epoch_->load();
      if (!ready()) {
        sleep(seen);
      }
      sleepers_->fetch_sub(1);
      health.check();
    }
  }

 private:
  static void pause();
  void sleep(std::uint32_t seen) const;

  SharedFile::Mapping mapping_;
  std::size_t ranks_;
  int spins_;
  std::atomic<std::uint32_t>* epoch_;
  std::atomic<std::uint32_t>* sleepers_;
  Entry* entries_;
  Stages* stages_;
  Posted* posted_;
  std::byte* slots_;
};

} // namespace trainer
