// Who has a model's parameters. A model asks for memory unit by unit (nn/tensor_table.h), in
// forward, in backward and in evaluate(), and says when it is done with it. Its owner decides where
// that memory is, when it comes from other ranks, what it is rounded to, and when gradients leave:
//
//   need(unit)    its parameters are about to be read
//   write(unit)   its gradients are about to be written, until they are final
//   done(unit)    its parameters are not read until the next need(unit)
//   final(count)  the first `count` gradients of the arena will not change any more
//
// Arenas are in the order in which backward finishes gradients, so what is final is always a
// prefix, and a bucket always a contiguous piece.
//
// strategy/replicated.h: a rank has all; strategy/gathered.h: ZeRO's stage 3; and strategy/passes.h
// is the owner in a step of training, and notifies the exchange that brings final gradients to the
// other ranks (strategy/exchange.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "trainer/device/typed_pointer.h"

namespace trainer {

/// Of a unit, from its first value on, in the device's memory.
struct UnitMemory {
  const float* weights = nullptr;
  float* gradients = nullptr; ///< Null of an owner for evaluate() alone.
  /// The weights in what the device multiplies in; null: it rounds them as it multiplies.
  const Bf16Value* rounded = nullptr;

  /// From value `offset` on.
  UnitMemory from(std::size_t offset) const {
    return {weights + offset, gradients == nullptr ? nullptr : gradients + offset,
            rounded == nullptr ? nullptr : rounded + offset};
  }
  /// The matrix or the bias of a product, which begins at value `offset`.
  ConstTypedPointer factor(std::size_t offset) const {
    return rounded == nullptr ? ConstTypedPointer(weights + offset)
                              : ConstTypedPointer(rounded + offset, DType::bf16);
  }
};

class ParameterOwner {
 public:
  virtual ~ParameterOwner() = default;

  /// A pass begins: forward and backward of a batch, or evaluate().
  virtual void begin_pass() {}
  /// What brings them, or a wait for it, is on the device's stream on return. The memory is the
  /// model's until it is done with the unit, or past the end of evaluate(), where the next pass
  /// needs it again.
  virtual UnitMemory need(std::size_t unit) = 0;
  virtual void write(std::size_t /*unit*/) {}
  virtual void done(std::size_t unit) = 0;
  virtual void final(std::size_t /*count*/) {}
  /// Floats: final() is called each time so many more are final, as nearly as the model can tell
  /// within a unit, and at each unit's end.
  virtual std::size_t granularity() const { return SIZE_MAX; }

  /// Passes are collective: each rank makes as many as the others.
  virtual bool is_shared() const { return false; }
};

} // namespace trainer
