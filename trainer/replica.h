// What a run is made of: the arenas, the model over them and its optimizer, alike on every rank.
#pragma once

#include <memory>
#include <span>

#include "trainer/collectives/communicator.h"
#include "trainer/data/dataset.h"
#include "trainer/models/model.h"
#include "trainer/optim/optimizer.h"

namespace trainer {

/// The model that was asked for, for images as the data set's.
inline ModelOptions fitted(ModelOptions model, const Dataset& data) {
  model.height = data.train.height;
  model.width = data.train.width;
  model.classes = data.classes;
  return model;
}

struct Replica {
  Replica(const ModelOptions& model_options, const OptimizerOptions& optimizer_options,
          Device& device_, Communicator& communicator)
      : Replica(model_options, optimizer_options, device_) {
    attach(communicator);
  }

  /// Without gradients: attach() has to follow.
  Replica(const ModelOptions& model_options, const OptimizerOptions& optimizer_options,
          Device& device_)
      : device(device_), model(make_model(model_options, device)),
        parameters(device.allocate(model->tensors().arena_size(), DType::f32)),
        optimizer(optimizer_options, parameters.span(), {}, device, &model->tensors()) {}

  /// Collective. Gradients in the communicator's memory, for as long as it lives, with `more`
  /// registered floats right behind them.
  void attach(Communicator& communicator, std::size_t more = 0) {
    const std::span<float> registered = communicator.allocate_on_device(parameters.size() + more);
    gradients = registered.first(parameters.size());
    behind_gradients = registered.subspan(parameters.size());
    model->bind(parameters.span(), gradients);
    optimizer.set_gradients(gradients);
  }

  Device& device;
  std::unique_ptr<Model> model;
  Buffer parameters;
  std::span<float> gradients;        ///< Registered with the communicator.
  std::span<float> behind_gradients; ///< Likewise; empty unless attach() was asked for them.
  Optimizer optimizer;
};

} // namespace trainer
