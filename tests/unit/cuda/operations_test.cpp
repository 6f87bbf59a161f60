// Every operation on a GPU beside float64.
#include <doctest/doctest.h>

#include "tests/unit/cuda/gpu.h"
#include "tests/unit/trainer/device/operations/operation.h"

using namespace trainer;
using namespace trainer::test;

TEST_CASE("every operation is float64's on a GPU, whatever its shape") {
  const auto gpu = make_gpu();
  check_operations(*gpu);
}

TEST_CASE("every operation on activations of bf16 is float64's but for their rounding") {
  const auto gpu = make_gpu();
  gpu->multiply_in(DType::bf16);
  REQUIRE(gpu->activation_type() == DType::bf16);
  check_operations(*gpu);
}
