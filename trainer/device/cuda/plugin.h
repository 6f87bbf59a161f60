// What the trainer asks of a GPU, as a table of functions: libdtrain_cuda.so, which is linked with
// CUDA's runtime, exports it, and the trainer loads it when it is wanted. So the trainer starts
// where there is no driver, and a table of tests' own takes the GPU's place where there is none
// (tests/cuda_on_cpu).
//
// All functions but `text` return 0, or CUDA's error code, which text() spells out. Any thread
// calls them. What takes a stream is carried out on it, in order, beside the caller; `free` and
// `destroy_stream` wait for what is under way.
#pragma once

#include <cstddef>
#include <cstdint>

#include "trainer/device/kernels.h"

namespace trainer {

inline constexpr int k_dtrain_cuda_version = 1;
#define DTRAIN_CUDA_SYMBOL "dtrain_cuda"

/// A stream of a GPU, as both sides see it.
struct CudaStreamHandle {
  int gpu = 0;
  void* stream = nullptr; ///< CUDA's own.
  /// Of the GPU's memory: what blocks of a kernel leave for the last one to add up.
  double* partial = nullptr;
};
inline constexpr std::size_t k_cuda_partials = 2048; ///< Doubles.

struct CudaGpu {
  char name[256];
  int major; ///< Of what it computes: 9.0
  int minor;
  int multiprocessors;
  std::size_t memory; ///< Bytes, and those that are free.
  std::size_t free;
};

struct DtrainCuda {
  int version;       ///< k_dtrain_cuda_version, or the table is another one.
  const char* build; ///< The version of dtrain that it is of.

  void (*text)(int error, char* text, std::size_t size);
  /// The driver's version, 0 without one, and the runtime's: 13000 is 13.0.
  int (*versions)(int* driver, int* runtime);
  int (*count)(int* gpus);
  int (*about)(int gpu, CudaGpu* about);

  int (*allocate)(int gpu, std::size_t bytes, void** memory);
  int (*free)(int gpu, void* memory);
  int (*allocate_pinned)(std::size_t bytes, void** memory);
  int (*free_pinned)(void* memory);

  int (*make_stream)(int gpu, CudaStreamHandle* stream);
  int (*destroy_stream)(const CudaStreamHandle* stream);
  /// Once all has been carried out that is on the stream so far.
  int (*record)(const CudaStreamHandle* stream, void** event);
  int (*destroy_event)(void* event);
  int (*has_passed)(void* event, int* passed);
  int (*wait)(void* event);
  int (*hold)(const CudaStreamHandle* stream, void* event); ///< Until it has passed.
  /// Where one side is the host's and not pinned, it is done on return.
  int (*copy)(const CudaStreamHandle* stream, const void* from, void* to, std::size_t bytes);
  int (*clear)(const CudaStreamHandle* stream, void* memory, std::size_t bytes);

  // The kernels of device/kernels.h.
  int (*sgd)(const CudaStreamHandle* stream, std::size_t n, const UpdateRule* rule,
             const float* gradient, float* m, float* parameter);
  int (*adam)(const CudaStreamHandle* stream, std::size_t n, const UpdateRule* rule,
              const float* gradient, float* m, float* v, float* parameter);
  int (*lamb)(const CudaStreamHandle* stream, std::size_t n, const UpdateRule* rule,
              const float* gradient, float* m, float* v, float* u, float* parameter);
  int (*clip_factor)(const CudaStreamHandle* stream, std::size_t n, const float* gradient,
                     float limit, float* norm, float* factor);
  int (*bytes_to_floats)(const CudaStreamHandle* stream, std::size_t n, const std::uint8_t* from,
                         float* to);
  int (*dense)(const CudaStreamHandle* stream, const DenseShape* shape, const float* x,
               const float* weight, const float* bias, int relu, float* y);
  int (*dense_backward_weight)(const CudaStreamHandle* stream, const DenseShape* shape,
                               const float* x, const float* dy, int accumulate, float* dweight,
                               float* dbias);
  int (*dense_backward_input)(const CudaStreamHandle* stream, const DenseShape* shape,
                              const float* dy, const float* weight, const float* x, float* dx);
  int (*softmax_cross_entropy)(const CudaStreamHandle* stream, std::size_t rows,
                               std::size_t classes, const float* logits, const std::uint8_t* labels,
                               float scale, float* change, Score* score);
};

/// The one symbol that the plug-in exports.
extern "C" const DtrainCuda* dtrain_cuda();

} // namespace trainer
