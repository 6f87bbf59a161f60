#include "trainer/device/cuda/matmul.h"

#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

namespace trainer {
namespace {

constexpr std::uintptr_t k_most_alignment = 256;

unsigned alignment_of(const void* memory) {
  const std::uintptr_t lowest = reinterpret_cast<std::uintptr_t>(memory) | k_most_alignment;
  return static_cast<unsigned>(lowest & (~lowest + 1));
}

/// Of a GPU. Plans live as long as the program.
int plan_of(const Blas& blas, const CudaStreamHandle& stream, const MatmulShape& shape,
            void** plan) {
  static std::mutex mutex;
  static std::map<std::pair<int, MatmulShape>, void*> plans;
  const std::lock_guard<std::mutex> lock(mutex);
  const auto known = plans.find({stream.gpu, shape});
  if (known != plans.end()) {
    *plan = known->second;
    return 0;
  }
  const int error = blas.plan(stream.gpu, shape, stream.workspace_bytes, plan);
  if (error == 0) {
    plans[{stream.gpu, shape}] = *plan;
  }
  return error;
}

} // namespace

int multiply(const CudaStreamHandle* stream, const Matmul& s) {
  using Epilogue = Matmul::Epilogue;
  const Blas* blas = find_blas();
  const bool is_plain = s.batch == 1 && s.a_row == 0 && s.b_row == 0 && s.c_row == 0;
  if (blas == nullptr || !is_plain) {
    return k_no_blas;
  }
  const bool has_bias = s.epilogue == Epilogue::bias || s.epilogue == Epilogue::relu_bias;
  const MatmulShape shape{.m = s.m,
                          .n = s.n,
                          .k = s.k,
                          .a_is_turned = s.a_is_turned,
                          .b_is_turned = s.b_is_turned,
                          .epilogue = has_bias ? s.epilogue : Epilogue::none,
                          .accumulate = s.accumulate,
                          .a_alignment = alignment_of(s.a),
                          .b_alignment = alignment_of(s.b),
                          .c_alignment = alignment_of(s.c)};
  void* plan = nullptr;
  const int error = plan_of(*blas, *stream, shape, &plan);
  return error != 0        ? error
         : plan == nullptr ? k_no_blas
                           : blas->run(plan, stream, s.a, s.b, has_bias ? s.with : nullptr, s.c);
}

} // namespace trainer
