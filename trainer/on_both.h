// What functions are marked with that the CPU and a GPU's kernels share.
#pragma once

#ifdef __CUDACC__
#define DTRAIN_ON_BOTH __host__ __device__
#else
#define DTRAIN_ON_BOTH
#endif
