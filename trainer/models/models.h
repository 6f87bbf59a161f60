// The models that make_model() knows beside transformers (transformer.h), each in the file of its
// name; the CNN for devices that are not the CPU in layered_cnn.cpp.
#pragma once

#include <array>
#include <cstddef>
#include <memory>

#include "trainer/models/model.h"

namespace trainer {

/// Of the CNN: in, behind its first convolution, and behind its second.
inline constexpr std::array<std::size_t, 3> k_cnn_channels = {1, 32, 64};

std::unique_ptr<Model> make_cnn(const ModelOptions& options, Device& device);
/// For devices that are not the CPU.
std::unique_ptr<Model> make_layered_cnn(const ModelOptions& options, Device& device);
std::unique_ptr<Model> make_mlp(const ModelOptions& options, Device& device);

} // namespace trainer
