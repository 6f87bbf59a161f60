// CUDA's runtime as tests have it where there is no GPU, behind the plug-in's table.
//
// It is as late as a GPU may be: what is put on a stream is carried out when somebody waits for it,
// or asks often enough whether it has passed, and other streams only where an event says so. So
// what is read too early is not there yet. And the GPU's memory is the host's to touch at no time
// but while something is carried out: anything else is a fault. Wrong use (a stream of another GPU,
// an event twice destroyed) ends the program.
//
// DTRAIN_FAKE_GPUS says how many there are (2); DTRAIN_FAKE_DRIVER which driver (13000; 0: none).
#pragma once

#include <cstddef>
#include <functional>

#include "trainer/device/cuda/plugin.h"

namespace cuda_on_cpu {

[[noreturn]] void fail(const char* what);

/// Behind what is on the stream already.
void put(const trainer::CudaStreamHandle& stream, std::function<void()> work);

/// Allocations, streams and events that nobody has given back.
std::size_t live();

/// Those functions of the table that are not kernels.
void set_runtime(trainer::DtrainCuda& table);

} // namespace cuda_on_cpu
