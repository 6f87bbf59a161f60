// What a run is made of: the arenas, the model over them and its optimizer, alike on every rank.
#pragma once

#include <span>

#include "trainer/collectives/communicator.h"
#include "trainer/models/mlp.h"
#include "trainer/optim/adam.h"

namespace trainer {

struct Replica {
  Replica(const MlpShape& shape, double learning_rate, const CpuKernels& kernels,
          Communicator& communicator)
      : Replica(shape, learning_rate, kernels) {
    attach(communicator);
  }

  /// Without gradients: attach() has to follow.
  Replica(const MlpShape& shape, double learning_rate, const CpuKernels& kernels)
      : model(shape, kernels), parameters(model.parameter_count()),
        optimizer(parameters.span(), {}, learning_rate, kernels) {}

  /// Collective. Gradients in the communicator's memory, for as long as it lives, with `more`
  /// registered floats right behind them.
  void attach(Communicator& communicator, std::size_t more = 0) {
    const std::span<float> registered = communicator.allocate(model.parameter_count() + more);
    gradients = registered.first(model.parameter_count());
    behind_gradients = registered.subspan(model.parameter_count());
    model.bind(parameters.span(), gradients);
    optimizer.set_gradients(gradients);
  }

  Mlp model;
  Buffer parameters;
  std::span<float> gradients;        ///< Registered with the communicator.
  std::span<float> behind_gradients; ///< Likewise; empty unless attach() was asked for them.
  AdamOptimizer optimizer;
};

} // namespace trainer
