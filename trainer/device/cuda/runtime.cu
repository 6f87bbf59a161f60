// The plug-in itself: CUDA's runtime behind the table of plugin.h.
#include <cstdio>
#include <cstring>

#include <cuda_runtime.h>

#include "trainer/device/cuda/kernels.h"
#include "trainer/device/cuda/matmul.h"

namespace trainer {
namespace {

cudaStream_t stream_of(const CudaStreamHandle* stream) {
  return static_cast<cudaStream_t>(stream->stream);
}

/// The call's result, on `gpu`: CUDA's calls are of the thread's own device.
template <typename Call>
int on(int gpu, const Call& call) {
  const cudaError_t error = cudaSetDevice(gpu);
  return error != cudaSuccess ? error : call();
}

void text(int error, char* to, std::size_t size) {
  (void)std::snprintf(to, size, "%s", cudaGetErrorString(static_cast<cudaError_t>(error)));
}

int versions(int* driver, int* runtime) {
  const cudaError_t error = cudaDriverGetVersion(driver);
  return error != cudaSuccess ? error : cudaRuntimeGetVersion(runtime);
}

int count(int* gpus) { return cudaGetDeviceCount(gpus); }

int about(int gpu, CudaGpu* to) {
  cudaDeviceProp properties{};
  if (const cudaError_t error = cudaGetDeviceProperties(&properties, gpu); error != cudaSuccess) {
    return error;
  }
  (void)std::snprintf(to->name, sizeof to->name, "%s", properties.name);
  to->major = properties.major;
  to->minor = properties.minor;
  to->multiprocessors = properties.multiProcessorCount;
  std::memcpy(to->uuid, &properties.uuid, sizeof to->uuid);
  int kilohertz = 0;
  const bool is_known =
      cudaDeviceGetAttribute(&kilohertz, cudaDevAttrClockRate, gpu) == cudaSuccess;
  to->hertz = is_known ? 1e3 * kilohertz : 0;
  return on(gpu, [&] { return cudaMemGetInfo(&to->free, &to->memory); });
}

int allocate(int gpu, std::size_t bytes, void** memory) {
  return on(gpu, [&] { return cudaMalloc(memory, bytes); });
}
int release(int gpu, void* memory) {
  return on(gpu, [&] { return cudaFree(memory); });
}
int allocate_pinned(std::size_t bytes, void** memory) {
  return cudaHostAlloc(memory, bytes, cudaHostAllocPortable);
}
int free_pinned(void* memory) { return cudaFreeHost(memory); }

int make_stream(int gpu, CudaStreamHandle* stream) {
  return on(gpu, [&] {
    cudaStream_t made = nullptr;
    void* partial = nullptr;
    cudaError_t error = cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking);
    if (error == cudaSuccess) {
      error = cudaMalloc(&partial, k_cuda_partials * sizeof(double));
    }
    void* workspace = nullptr;
    const std::size_t bytes = find_blas() == nullptr ? 0 : k_cuda_workspace;
    if (error == cudaSuccess && bytes > 0) {
      error = cudaMalloc(&workspace, bytes);
    }
    *stream = {gpu, made, static_cast<double*>(partial), workspace, bytes};
    return error;
  });
}

int destroy_stream(const CudaStreamHandle* stream) {
  return on(stream->gpu, [&] {
    cudaStreamSynchronize(stream_of(stream));
    cudaError_t error = cudaStreamDestroy(stream_of(stream));
    if (error == cudaSuccess) {
      error = cudaFree(stream->workspace);
    }
    return error != cudaSuccess ? error : cudaFree(stream->partial);
  });
}

int record(const CudaStreamHandle* stream, void** event) {
  return on(stream->gpu, [&] {
    cudaEvent_t made = nullptr;
    cudaError_t error = cudaEventCreateWithFlags(&made, cudaEventDisableTiming);
    if (error == cudaSuccess) {
      error = cudaEventRecord(made, stream_of(stream));
    }
    *event = made;
    return error;
  });
}

int destroy_event(void* event) { return cudaEventDestroy(static_cast<cudaEvent_t>(event)); }

int has_passed(void* event, int* passed) {
  const cudaError_t error = cudaEventQuery(static_cast<cudaEvent_t>(event));
  *passed = error == cudaSuccess ? 1 : 0;
  return error == cudaErrorNotReady ? cudaSuccess : error;
}

int wait(void* event) { return cudaEventSynchronize(static_cast<cudaEvent_t>(event)); }

int hold(const CudaStreamHandle* stream, void* event) {
  return on(stream->gpu, [&] {
    return cudaStreamWaitEvent(stream_of(stream), static_cast<cudaEvent_t>(event), 0);
  });
}

/// Whether it is memory that the host allocated by other means than this table.
bool is_pageable(const void* memory) {
  cudaPointerAttributes attributes{};
  return cudaPointerGetAttributes(&attributes, memory) != cudaSuccess ||
         attributes.type == cudaMemoryTypeUnregistered;
}

int copy(const CudaStreamHandle* stream, const void* from, void* to, std::size_t bytes) {
  return on(stream->gpu, [&] {
    const cudaError_t error =
        cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_of(stream));
    return error == cudaSuccess && (is_pageable(from) || is_pageable(to))
               ? cudaStreamSynchronize(stream_of(stream))
               : error;
  });
}

int clear(const CudaStreamHandle* stream, void* memory, std::size_t bytes) {
  return on(stream->gpu, [&] { return cudaMemsetAsync(memory, 0, bytes, stream_of(stream)); });
}

int begin_graph(const CudaStreamHandle* stream) {
  return on(stream->gpu, [&] {
    return cudaStreamBeginCapture(stream_of(stream), cudaStreamCaptureModeThreadLocal);
  });
}

int end_graph(const CudaStreamHandle* stream, void** graph) {
  return on(stream->gpu, [&] {
    cudaGraph_t noted = nullptr;
    cudaGraphExec_t made = nullptr;
    cudaError_t error = cudaStreamEndCapture(stream_of(stream), &noted);
    if (error == cudaSuccess) {
      error = cudaGraphInstantiate(&made, noted, 0);
    }
    if (noted != nullptr) {
      cudaGraphDestroy(noted);
    }
    *graph = made;
    return error;
  });
}

int put_graph(const CudaStreamHandle* stream, void* graph) {
  return on(stream->gpu, [&] {
    return cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), stream_of(stream));
  });
}

int destroy_graph(void* graph) { return cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph)); }

} // namespace

extern "C" __attribute__((visibility("default"))) const DtrainCuda* dtrain_cuda() {
  static const DtrainCuda table = [] {
    DtrainCuda all{};
    all.version = k_dtrain_cuda_version;
    all.build = DTRAIN_VERSION;
    all.text = text;
    all.versions = versions;
    all.count = count;
    all.about = about;
    all.allocate = allocate;
    all.free = release;
    all.allocate_pinned = allocate_pinned;
    all.free_pinned = free_pinned;
    all.make_stream = make_stream;
    all.destroy_stream = destroy_stream;
    all.record = record;
    all.destroy_event = destroy_event;
    all.has_passed = has_passed;
    all.wait = wait;
    all.hold = hold;
    all.copy = copy;
    all.clear = clear;
    all.begin_graph = begin_graph;
    all.end_graph = end_graph;
    all.put_graph = put_graph;
    all.destroy_graph = destroy_graph;
    set_nccl(all);
    set_flat_kernels(all);
    set_layer_kernels(all);
    set_convolution_kernels(all);
    set_text_kernels(all);
    set_attention_kernels(all);
    return all;
  }();
  return &table;
}

} // namespace trainer
