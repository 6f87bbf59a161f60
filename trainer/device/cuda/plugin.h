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

#include "trainer/device/buffer.h"
#include "trainer/device/kernels.h"

namespace trainer {

inline constexpr int k_dtrain_cuda_version = 7;
#define DTRAIN_CUDA_SYMBOL "dtrain_cuda"

/// A stream of a GPU, as both sides see it.
struct CudaStreamHandle {
  int gpu = 0;
  void* stream = nullptr; ///< CUDA's own.
  /// Of the GPU's memory: what blocks of a kernel leave for the last one to add up.
  double* partial = nullptr;
  void* workspace = nullptr; ///< Likewise, of matrix products (matmul.h).
  std::size_t workspace_bytes = 0;
};
inline constexpr std::size_t k_cuda_partials = 2048;                   ///< Doubles.
inline constexpr std::size_t k_cuda_workspace = std::size_t{32} << 20; ///< What Hopper asks for.

struct CudaGpu {
  char name[256];
  int major; ///< Of what it computes: 9.0
  int minor;
  int multiprocessors;
  std::size_t memory; ///< Bytes, and those that are free.
  std::size_t free;
  unsigned char uuid[16]; ///< No other GPU has it.
  double hertz;           ///< Of its multiprocessors, at most; 0: not known.
};

/// What the ranks of a communicator of NCCL's find each other by: one makes it and tells the
/// others.
struct NcclId {
  char bytes[128];
};

/// A rank of a communicator, on a GPU of this process.
struct NcclRank {
  int rank;
  int gpu;
  void* comm; ///< NCCL's own, which connect() makes.
};

/// A rank's part of a collective, in place.
struct NcclCall {
  enum class Op : int { all_reduce, reduce, broadcast, reduce_scatter, all_gather };
  Op op;
  void* comm;
  const CudaStreamHandle* stream;
  void* memory;
  std::size_t count; ///< Of values of `dtype`: of the last two, in a rank's chunk.
  DType dtype;
  int root; ///< Of reduce and broadcast; of the last two, this rank.
};

/// NCCL, whose calls do not block here: what returns k_nccl_in_progress is done when state() says
/// 0, and until then its communicator takes no other call but abort. All return 0, that, or NCCL's
/// error code, which text() spells out.
inline constexpr int k_nccl_in_progress = 7;
struct DtrainNccl {
  int version; ///< NCCL's: 23007 is 2.30.7.
  void (*text)(int error, void* comm, char* text, std::size_t size);
  int (*make_id)(NcclId* id);
  /// Begins to connect all ranks of this process with those of the others.
  int (*connect)(const NcclId* id, int world_size, NcclRank* ranks, std::size_t count);
  int (*state)(void* comm);
  /// Memory that collectives read and write in place, faster where NCCL knows of it.
  int (*add_memory)(void* comm, void* memory, std::size_t bytes, void** handle);
  int (*remove_memory)(void* comm, void* handle);
  /// As one group: none waits for another. Each is carried out on its stream.
  int (*put)(const NcclCall* calls, std::size_t count);
  /// Ends what is under way, whatever it has come to, and frees `comm`. Beside any other call.
  int (*abort)(void* comm);
  /// Frees `comm`, of which nothing is under way.
  int (*destroy)(void* comm);
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

  /// From here on kernels put on the stream are noted, not carried out; nothing else is put there.
  int (*begin_graph)(const CudaStreamHandle* stream);
  int (*end_graph)(const CudaStreamHandle* stream, void** graph);
  int (*put_graph)(const CudaStreamHandle* stream, void* graph);
  int (*destroy_graph)(void* graph);

  /// NCCL, loaded when it is first asked for; null where there is none, and why.
  const DtrainNccl* (*nccl)(char* why, std::size_t size);

  // The kernels of device/kernels.h.
  int (*begin)(const CudaStreamHandle* stream, const StepRule* rule, const StepInput* input,
               StepState* state);
  int (*prepare)(const CudaStreamHandle* stream, const StepRule* rule, const double* squares,
                 StepState* state);
  int (*sgd)(const CudaStreamHandle* stream, std::size_t n, const UpdateRule* rule,
             const StepState* state, const float* gradient, float* m, float* parameter);
  int (*adam)(const CudaStreamHandle* stream, std::size_t n, const UpdateRule* rule,
              const StepState* state, const float* gradient, float* m, float* v, float* parameter);
  int (*lamb)(const CudaStreamHandle* stream, std::size_t n, const UpdateRule* rule,
              const StepState* state, const float* gradient, float* m, float* v, float* u,
              float* parameter);
  int (*muon_direction)(const CudaStreamHandle* stream, std::size_t n, const UpdateRule* rule,
                        const StepState* state, const float* gradient, float* m, float* u);
  int (*muon_take)(const CudaStreamHandle* stream, std::size_t n, const UpdateRule* rule,
                   const StepState* state, float ratio, const float* u, float* parameter);
  int (*normalise)(const CudaStreamHandle* stream, std::size_t n, const double* squares, float* x);
  int (*blend)(const CudaStreamHandle* stream, std::size_t n, float a, const float* x, float b,
               float* y);
  int (*matmul)(const CudaStreamHandle* stream, const Matmul* matmul);
  int (*squares)(const CudaStreamHandle* stream, std::size_t n, const float* gradient, double* to);
  int (*sum)(const CudaStreamHandle* stream, std::size_t n, std::size_t stride, const double* from,
             double* to);
  int (*bytes_to_floats)(const CudaStreamHandle* stream, std::size_t n, const std::uint8_t* from,
                         float* to);
  int (*narrow)(const CudaStreamHandle* stream, std::size_t n, DType type, const float* from,
                void* to);
  int (*widen)(const CudaStreamHandle* stream, std::size_t n, DType type, const void* from,
               float* to);
  int (*softmax_cross_entropy)(const CudaStreamHandle* stream, std::size_t rows,
                               std::size_t classes, const float* logits, const std::uint8_t* labels,
                               const float* scale, float* change, Score* score);
  int (*convolution)(const CudaStreamHandle* stream, const ConvolutionShape* shape, const float* x,
                     const float* weight, const float* bias, float* y, std::uint8_t* chosen);
  int (*convolution_backward_weight)(const CudaStreamHandle* stream, const ConvolutionShape* shape,
                                     const float* x, const float* dy, const std::uint8_t* chosen,
                                     int accumulate, float* room, float* dweight, float* dbias);
  int (*convolution_backward_input)(const CudaStreamHandle* stream, const ConvolutionShape* shape,
                                    const float* dy, const std::uint8_t* chosen,
                                    const float* weight, float* dx);

  // Those of device/text_kernels.h.
  int (*keep_bits)(const CudaStreamHandle* stream, const KeepBits* which, std::size_t words,
                   std::uint16_t* to);
  int (*drop)(const CudaStreamHandle* stream, std::size_t n, const Dropped* dropped, const float* x,
              float* to);
  int (*drop_and_add)(const CudaStreamHandle* stream, std::size_t n, const Dropped* dropped,
                      const float* residual, float* x);
  int (*embed)(const CudaStreamHandle* stream, const TextShape* shape, const std::int32_t* ids,
               const float* words, const float* type, const float* positions, float* to);
  int (*embed_backward)(const CudaStreamHandle* stream, const TextShape* shape,
                        const std::int32_t* ids, const float* dy, float* dwords, float* dtype,
                        float* dpositions);
  int (*norm)(const CudaStreamHandle* stream, const NormShape* shape, const float* x,
              const float* gain, const float* shift, float* y, float* moments);
  int (*norm_backward)(const CudaStreamHandle* stream, const NormShape* shape, const float* x,
                       const float* moments, const float* gain, int accumulate, float* dy,
                       float* dgain, float* dshift);
  int (*gelu_backward)(const CudaStreamHandle* stream, std::size_t n, const float* x, float* dy);
  int (*attention)(const CudaStreamHandle* stream, const AttentionShape* shape,
                   const std::int32_t* lengths, const Dropped* dropped,
                   const Heads<const float>* of, float* p, float* context);
  int (*attention_backward)(const CudaStreamHandle* stream, const AttentionShape* shape,
                            const Dropped* dropped, const Heads<const float>* of, const float* p,
                            const float* dcontext, float* room, const Heads<float>* changes);
  int (*gather_masked)(const CudaStreamHandle* stream, const MaskedShape* shape,
                       const std::int32_t* masked, const float* x, float* to);
  int (*scatter_masked)(const CudaStreamHandle* stream, const MaskedShape* shape,
                        const std::int32_t* masked, const float* from, float* to);
  int (*masked_cross_entropy)(const CudaStreamHandle* stream, const MaskedShape* shape,
                              const std::int32_t* masked, const std::int32_t* targets,
                              const float* scale, float* logits, Score* score);
};

/// The one symbol that the plug-in exports.
extern "C" const DtrainCuda* dtrain_cuda();

} // namespace trainer
