// The models that make_model() knows, each in the file of its name.
#pragma once

#include <memory>

#include "trainer/models/model.h"

namespace trainer {

std::unique_ptr<Model> make_cnn(const ModelOptions& options, Device& device);
std::unique_ptr<Model> make_layered_mlp(const ModelOptions& options, Device& device);
std::unique_ptr<Model> make_mlp(const ModelOptions& options, Device& device);

} // namespace trainer
