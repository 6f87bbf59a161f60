// The interface that shared memory, TCP and their combination have in common to carry collectives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "trainer/collectives/collective.h"

namespace trainer {

/// Carries out one collective after the other, all of it within a call. One call at a time.
class Carrier {
 public:
  virtual ~Carrier() = default;
  virtual std::string describe() const = 0;
  /// For an all_reduce of registered memory.
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

} // namespace trainer
