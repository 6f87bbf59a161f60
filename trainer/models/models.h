// The models of make_model() other than transformers (transformer.h), each in the file of its name;
// the CNN for GPUs is in layered_cnn.cpp.
#pragma once

#include <array>
#include <cstddef>
#include <memory>

#include "trainer/models/model.h"

namespace trainer {

/// Channels of the CNN: of its input, after its first convolution, and after its second.
inline constexpr std::array<std::size_t, 3> k_cnn_channels = {1, 32, 64};

std::unique_ptr<Model> make_cnn(const ModelOptions& options, Device& device);
/// The CNN for devices other than the CPU.
std::unique_ptr<Model> make_layered_cnn(const ModelOptions& options, Device& device);
std::unique_ptr<Model> make_mlp(const ModelOptions& options, Device& device);

} // namespace trainer
