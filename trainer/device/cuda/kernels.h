// The parts of the plug-in's device (cuda_device.cpp): its kernels, and NCCL.
#pragma once

#include <string>

#include "trainer/device/cuda/nccl.h"
#include "trainer/device/cuda/stream.h"
#include "trainer/device/kernels.h"

namespace trainer {

/// The CudaStream of a stream of the plug-in.
const CudaStreamHandle* handle_of(const Stream& stream);
/// Checks the launch of a kernel, whose name becomes part of an error. Unless `has_forgotten`, the
/// stream's Narrowed forgets all copies; else the launch has told it what the kernel wrote.
void check_kernel(Stream& stream, int error, const char* kernel, bool has_forgotten = false);

/// Wraps put_NAME, which returns 0 or CUDA's error code, as a slot of Kernels.
#define DTRAIN_PUT(kernels, name)                                                                  \
  kernels.name = [](Stream& on, auto... arguments) {                                               \
    check_kernel(on, put_##name(handle_of(on), arguments...), #name);                              \
  }

/// For a put_NAME that tells the stream's Narrowed by forget() what its kernels write, so that
/// copies of all else stay.
#define DTRAIN_PUT_AND_TELL(kernels, name)                                                         \
  kernels.name = [](Stream& on, auto... arguments) {                                               \
    check_kernel(on, put_##name(handle_of(on), arguments...), #name, true);                        \
  }

void set_flat_kernels(Kernels& kernels);
void set_layer_kernels(Kernels& kernels, LayerKernels& layers);
void set_score_kernels(LayerKernels& layers);
void set_gradient_kernels(LayerKernels& layers);
void set_convolution_kernels(LayerKernels& layers);
void set_text_kernels(TextKernels& text);
void set_embedding_kernels(TextKernels& text);
void set_norm_kernels(TextKernels& text);
void set_norm_backward_kernels(TextKernels& text);
void set_attention_kernels(TextKernels& text);

/// Loaded at the first call; null if there is none, and `why` then says why.
const DtrainNccl* find_nccl(std::string& why);

} // namespace trainer
