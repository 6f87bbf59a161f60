// Collectives of ordinary buffers between ranks that share memory: they pass through each rank's
// slots of the arena, piece by piece (shared_memory.h).
#pragma once

#include <functional>
#include <memory>

#include "trainer/collectives/shared_memory/shared_arena.h"

namespace trainer {

class Staged {
 public:
  /// For position `self` of so many ranks. The arguments outlive it.
  Staged(const SharedArena& arena, Health& health, int ranks, int self);
  ~Staged();
  Staged(const Staged&) = delete;
  Staged& operator=(const Staged&) = delete;

  /// Carries out a collective that moves data. It calls `meet` once, in which all ranks agree on
  /// what they carry out, before it touches the others' data.
  void carry_out(const Collective& collective, const std::function<void()>& meet);

 private:
  class Pieces;
  std::unique_ptr<Pieces> pieces_;
};

} // namespace trainer
