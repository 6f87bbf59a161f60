// cuBLASLt as tests have it where there is no GPU: products by plain loops, carried out on the
// stream as late as its own. Wrong use ends the program: memory less aligned than the plan was
// told, a plan or workspace of another GPU or stream, a bias where the plan has none.
//
// DTRAIN_FAKE_BLAS=1: there is one; by itself the plug-in's own kernels compute.
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <deque>

#include "tests/cuda_on_cpu/runtime.h"
#include "trainer/device/cuda/matmul.h"

namespace cuda_on_cpu {
namespace {

using namespace trainer;

std::atomic<int> made{0};

struct Plan {
  int gpu;
  MatmulShape shape;
};

int plan(int gpu, const MatmulShape& shape, std::size_t workspace, void** plan) {
  if (workspace == 0) {
    fail("a product is planned without a workspace");
  }
  static std::deque<Plan> plans; // One thread at a time makes them.
  ++made;
  *plan = &plans.emplace_back(Plan{gpu, shape});
  return 0;
}

void check_memory(int gpu, const void* memory, unsigned alignment) {
  if (!is_on_gpu(gpu, memory) || reinterpret_cast<std::uintptr_t>(memory) % alignment != 0) {
    fail("a product of memory that is another GPU's, or less aligned than its plan");
  }
}

void compute(const MatmulShape& s, const float* a, const float* b, const float* bias, float* c) {
  for (std::size_t row = 0; row < s.m; ++row) {
    for (std::size_t column = 0; column < s.n; ++column) {
      float sum = 0;
      for (std::size_t i = 0; i < s.k; ++i) {
        sum += a[s.a_is_turned ? i * s.m + row : row * s.k + i] *
               b[s.b_is_turned ? column * s.k + i : i * s.n + column];
      }
      sum += s.epilogue == MatmulShape::Epilogue::none ? 0 : bias[column];
      if (s.epilogue == MatmulShape::Epilogue::relu_bias && sum < 0) {
        sum = 0;
      }
      float& to = c[row * s.n + column];
      to = s.accumulate ? to + sum : sum;
    }
  }
}

int run(void* plan, const CudaStreamHandle* stream, const float* a, const float* b,
        const float* bias, float* c) {
  const auto& [gpu, shape] = *static_cast<Plan*>(plan);
  check_memory(gpu, a, shape.a_alignment);
  check_memory(gpu, b, shape.b_alignment);
  check_memory(gpu, c, shape.c_alignment);
  if (stream->gpu != gpu || !is_on_gpu(gpu, stream->workspace) ||
      (bias != nullptr) != (shape.epilogue != MatmulShape::Epilogue::none)) {
    fail("a product on another GPU's stream, or with a bias that its plan has not");
  }
  put(*stream, [shape = shape, a, b, bias, c] { compute(shape, a, b, bias, c); });
  return 0;
}

} // namespace

int blas_plans() { return made; }

} // namespace cuda_on_cpu

const trainer::Blas* trainer::find_blas() {
  static const Blas blas = {cuda_on_cpu::plan, cuda_on_cpu::run};
  return std::getenv("DTRAIN_FAKE_BLAS") == nullptr ? nullptr : &blas;
}
