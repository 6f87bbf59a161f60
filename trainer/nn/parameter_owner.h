// The owner of a model's parameters. A model asks for memory unit by unit (nn/tensor_table.h), in
// forward, in backward and in evaluate(), and says when it is done with it. The owner decides where
// that memory is, when it comes from other ranks, to which type it is rounded, and when gradients
// leave:
//
//   need(unit)    the model is about to read the unit's parameters
//   write(unit)   the model is about to write the unit's gradients, until they are final
//   done(unit)    the model does not read the unit's parameters until the next need(unit)
//   final(count)  the first `count` gradients of the arena will not change any more
//
// Arenas are in the order in which backward finishes gradients, so final gradients are always a
// prefix, and a bucket is always contiguous.
//
// Owners: strategy/replicated.h (a rank has all), strategy/gathered.h (ZeRO 3), and
// strategy/passes.h (the owner in a training step, which also notifies the exchange that brings
// final gradients to the other ranks, strategy/exchange.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "trainer/device/typed_pointer.h"

namespace trainer {

/// The memory of a unit, from its first value on, on the device.
struct UnitMemory {
  const float* weights = nullptr;
  float* gradients = nullptr; ///< Null if the owner serves evaluate() only.
  /// The weights in the type in which the device multiplies; null: it rounds them as it multiplies.
  const Bf16Value* rounded = nullptr;

  /// The memory from value `offset` on.
  UnitMemory from(std::size_t offset) const {
    return {weights + offset, gradients == nullptr ? nullptr : gradients + offset,
            rounded == nullptr ? nullptr : rounded + offset};
  }
  /// The matrix or bias of a product that begins at value `offset`.
  ConstTypedPointer factor(std::size_t offset) const {
    return rounded == nullptr ? ConstTypedPointer(weights + offset)
                              : ConstTypedPointer(rounded + offset, DType::bf16);
  }
};

class ParameterOwner {
 public:
  virtual ~ParameterOwner() = default;

  /// Begins a pass: forward and backward of a batch, or evaluate().
  virtual void begin_pass() {}
  /// On return the transfer of the parameters, or a wait for it, is queued on the device's stream.
  /// The memory stays valid until done(unit), or after evaluate() until the next pass.
  virtual UnitMemory need(std::size_t unit) = 0;
  virtual void write(std::size_t /*unit*/) {}
  virtual void done(std::size_t unit) = 0;
  virtual void final(std::size_t /*count*/) {}
  /// The model calls final() about every so many floats, as far as it can tell within a unit, and
  /// at the end of each unit.
  virtual std::size_t granularity() const { return SIZE_MAX; }

  /// Whether passes are collective: each rank makes as many as the others.
  virtual bool is_shared() const { return false; }
};

} // namespace trainer
