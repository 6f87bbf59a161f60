// CUDA's runtime as tests have it where there is no GPU (cuda_runtime.h), and what they ask it.
//
// It is as late as a GPU may be: what is put on a stream is carried out when somebody waits for it,
// or asks often enough whether it has passed, and other streams only where an event says so. So
// what is read too early is not there yet. And the GPU's memory is the host's to touch at no time
// but while something is carried out: anything else is a fault. Wrong use (a stream of another GPU,
// an event twice destroyed) ends the program.
//
// DTRAIN_FAKE_KERNEL_US=200,600 says how many microseconds a kernel takes on each GPU: half to one
// and a half times as many, by DTRAIN_FAKE_SEED. Without it kernels take no time. Streams keep the
// time: a kernel begins when it was put there, when the one before it ends, or when the event
// passes that it waits for, whichever comes last, and nobody sees what it did before it has ended.
// DTRAIN_FAKE_STEADY=1: each takes its GPU's mean. DTRAIN_FAKE_COPY_US=200,2000 says the same of
// copies, to and from the host and between GPUs: they take as long as the slower of the two has.
// DTRAIN_FAKE_IDLE=1: they take time and compute nothing, so that no time is the CPU's.
//
// DTRAIN_FAKE_EAGER=1: what is put on a stream beside a GPU's first one is carried out at once,
// with what it waits for, and so before all else that the first one has still to do.
//
// DTRAIN_FAKE_REGISTER=0: no memory can be pinned that is there already.
//
// DTRAIN_FAKE_GPUS says how many there are (2); DTRAIN_FAKE_PEERS=0 that none reaches another's
// memory; DTRAIN_FAKE_FREE how many bytes of one's memory are free, at most; DTRAIN_FAKE_PAGE how
// many bytes a page of virtual memory has (65536; 0: the driver does not manage it);
// DTRAIN_FAKE_DRIVER which driver (13000; 0: none), DTRAIN_FAKE_COMPUTE which compute capability
// (9), DTRAIN_FAKE_UUID whose GPUs these are, and DTRAIN_FAKE_FAULT=N that the Nth kernel that is
// carried out reads memory that is not there, or has the error DTRAIN_FAKE_ERROR, after which
// nothing succeeds any more. DTRAIN_FAKE_FLIP=1 that one bit of each product of cuBLASLt's on GPU 1
// is wrong, from product number DTRAIN_FAKE_FLIP_FROM on (1).
#pragma once

#include <cstddef>
#include <functional>
#include <string>

namespace trainer {
struct CudaStreamHandle;
}

namespace cuda_on_cpu {

[[noreturn]] void fail(const char* what);

/// Behind what is on the stream already.
void put(const trainer::CudaStreamHandle& stream, std::function<void()> work);

/// The same, asked again until it is done: it waits for others, who may be other processes.
void put_until(const trainer::CudaStreamHandle& stream, std::function<bool()> work);

bool is_on_gpu(int gpu, const void* memory);

/// Allocations, streams and events that nobody has given back.
std::size_t live();

/// Calls of the runtime's function `name` so far, of those that a step may make; of "kernel": that
/// were put on a stream, of "noted": for a graph; of "pageable": copies of memory of the host's
/// that is not pinned.
int calls(const std::string& name);
/// Products that were planned so far (blas.cpp).
int blas_plans();
/// Products in FP8 that were put on a stream so far.
int fp8_products();

} // namespace cuda_on_cpu
