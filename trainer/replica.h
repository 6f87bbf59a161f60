// What a run is made of: the arenas, the model over them and its optimizer, alike on every rank.
#pragma once

#include <span>

#include "trainer/comm/communicator.h"
#include "trainer/models/mlp.h"
#include "trainer/optim/adam.h"

namespace trainer {

struct Replica {
  Replica(const MlpShape& shape, double learning_rate, const CpuKernels& kernels,
          Communicator& communicator)
      : model(shape, kernels), parameters(model.parameter_count()),
        gradients(communicator.allocate(model.parameter_count())),
        optimizer(parameters.span(), gradients, learning_rate, kernels) {
    model.bind(parameters.span(), gradients);
  }

  Mlp model;
  Buffer parameters;
  std::span<float> gradients; ///< Registered with the communicator.
  AdamOptimizer optimizer;
};

} // namespace trainer
