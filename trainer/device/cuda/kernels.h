// What the plug-in's device (cuda_device.cpp) is made of: its kernels, and NCCL.
#pragma once

#include <string>

#include "trainer/device/cuda/nccl.h"
#include "trainer/device/cuda/stream.h"
#include "trainer/device/kernels.h"

namespace trainer {

/// Of a stream of the plug-in's.
const CudaStreamHandle* handle_of(const Stream& stream);
/// Of a kernel that was put there; its name is part of an error's text. `has_forgotten`: it has
/// told the stream's Narrowed what it wrote, all of which else is forgotten.
void check_kernel(Stream& stream, int error, const char* kernel, bool has_forgotten = false);

/// A slot of Kernels becomes put_NAME, which returns 0 or CUDA's error code.
#define DTRAIN_PUT(kernels, name)                                                                  \
  kernels.name = [](Stream& on, auto... arguments) {                                               \
    check_kernel(on, put_##name(handle_of(on), arguments...), #name);                              \
  }

void set_flat_kernels(Kernels& kernels);
void set_layer_kernels(Kernels& kernels, LayerKernels& layers);
void set_score_kernels(LayerKernels& layers);
void set_gradient_kernels(LayerKernels& layers);
void set_convolution_kernels(LayerKernels& layers);
void set_text_kernels(TextKernels& text);
void set_embedding_kernels(TextKernels& text);
void set_norm_kernels(TextKernels& text);
void set_attention_kernels(TextKernels& text);

/// Loaded when it is first asked for; null where there is none, and `why`.
const DtrainNccl* find_nccl(std::string& why);

} // namespace trainer
