// Collectives of ordinary buffers between ranks that share memory: they pass through each rank's
// slots of the arena, piece by piece (shared_memory.h).
#pragma once

#include <functional>
#include <memory>

#include "trainer/collectives/shared_memory/shared_arena.h"

namespace trainer {

class Staged {
 public:
  /// Of position `self` of so many. The others outlive it.
  Staged(const SharedArena& arena, Health& health, int ranks, int self);
  ~Staged();
  Staged(const Staged&) = delete;
  Staged& operator=(const Staged&) = delete;

  /// Of a collective that moves data. It calls `meet` once, by which all ranks agree on what they
  /// carry out, before it touches what is theirs.
  void carry_out(const Collective& collective, const std::function<void()>& meet);

 private:
  class Pieces;
  std::unique_ptr<Pieces> pieces_;
};

} // namespace trainer
