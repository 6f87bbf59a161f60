// Products on a GPU, their source run on the CPU, by the plug-in's own kernels and by cuBLASLt.
#include "tests/cuda_on_cpu/runtime.h"
#include "tests/unit/cuda/gpu.h"
#include "tests/unit/trainer/device/matmul_oracle.h"

#include <cstdlib>

using namespace trainer;
using namespace trainer::test;

TEST_CASE("a product on a GPU is float64's, whatever its shape and epilogue") {
  const auto made_gpu = make_gpu();
  CudaDevice& gpu = *made_gpu;
  check_all_matmuls(gpu);
}

#ifndef DTRAIN_ON_GPU
TEST_CASE("a product by cuBLASLt is float64's too, and each is planned once") {
  setenv("DTRAIN_FAKE_BLAS", "1", 1);
  const auto made_gpu = make_gpu();
  CudaDevice& gpu = *made_gpu;
  check_all_matmuls(gpu);
  const int plans = cuda_on_cpu::blas_plans();
  CHECK(plans > 0);
  check_matmul(gpu, {.m = 64, .n = 128, .k = 784});
  CHECK(cuda_on_cpu::blas_plans() == plans);
  unsetenv("DTRAIN_FAKE_BLAS");
}
#endif
