#include "trainer/device/cuda/matmul.h"

#include "trainer/device/cuda/fours.cuh"
#include "trainer/device/halves.h"

#include <algorithm>
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

/// The plans of a GPU. They live as long as the program.
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

// 4 bytes read and 2 written per value; pads each row with zeros.
template <typename Half>
__global__ void narrow_rows_kernel(Narrowed::Matrix matrix, std::uint16_t* to) {
  const std::size_t row = matrix.row();
  for (std::size_t i = k_four * first_item(); i < matrix.padded_rows * row;
       i += k_four * all_threads()) {
    const std::size_t column = i / row < matrix.rows ? i % row : matrix.columns;
    const float* const from = matrix.from + i / row * matrix.stride + column;
    Pack<float, k_four> x = {};
    if (column + k_four <= matrix.columns && are_fours(from)) {
      x = load<k_four>(from);
    } else {
      for (std::size_t k = 0; k < k_four && column + k < matrix.columns; ++k) {
        x.at[k] = from[k];
      }
    }
    Pack<std::uint16_t, k_four> rounded;
    for (std::size_t k = 0; k < k_four; ++k) {
      rounded.at[k] = Half::narrow(x.at[k]);
    }
    store(rounded, to + i);
  }
}

MatmulShape shape_of(const Matmul& s, std::size_t batch) {
  return {.m = s.m,
          .n = s.n,
          .k = s.k,
          .a_is_turned = s.a_is_turned,
          .b_is_turned = s.b_is_turned,
          .factor_type = s.a.type,
          .type = s.c.type,
          .is_tf32 = false,
          .epilogue = s.epilogue,
          .accumulate = s.accumulate || s.plus,
          .a_row = s.a_row,
          .b_row = s.b_row,
          .c_row = s.c_row,
          .batch = batch,
          .a_batch = s.a_batch,
          .b_batch = s.b_batch,
          .c_batch = s.c_batch,
          .a_alignment = alignment_of(s.a.memory),
          .b_alignment = alignment_of(s.b.memory),
          .c_alignment = std::min(alignment_of(s.c.memory), alignment_of(s.plus.memory))};
}

/// Whether put_epilogue() (layers.cu) can apply the epilogue: it takes contiguous rows only.
bool can_follow(const Matmul& s) {
  return s.epilogue == Matmul::Epilogue::bias_gradient || s.c_row == s.n;
}

/// Runs a plan with the epilogue if there is one; if `can_follow`, otherwise one without.
int run_planned(const Blas& blas, const CudaStreamHandle* stream, MatmulShape shape,
                const MatmulMemory& memory, bool can_follow, bool& has_ended) {
  const Matmul::Epilogue asked = shape.epilogue;
  void* plan = nullptr;
  int error = plan_of(blas, *stream, shape, &plan);
  if (error == 0 && plan == nullptr && can_follow) {
    shape.epilogue = Matmul::Epilogue::none;
    error = plan_of(blas, *stream, shape, &plan);
  }
  has_ended = shape.epilogue == asked;
  return error != 0 ? error : plan == nullptr ? k_no_blas : blas.run(plan, stream, memory);
}

} // namespace

int Narrowed::get(const CudaStreamHandle* stream, const Matrix& matrix, const void** to) {
  Slot* chosen = nullptr;
  const std::size_t bytes = matrix.padded_rows * matrix.row() * sizeof(std::uint16_t);
  const auto is_better = [&](const Slot& slot) {
    const bool fits = slot.bytes >= bytes;
    const bool chosen_fits = chosen->bytes >= bytes;
    return fits == chosen_fits ? slot.used < chosen->used : fits;
  };
  for (Slot& slot : slots_) {
    if (slot.used != 0 && slot.matrix == matrix) {
      slot.used = ++uses_;
      *to = slot.memory;
      return 0;
    }
    const bool is_of_product = slot.used > before_product_;
    if (!is_of_product && (chosen == nullptr || is_better(slot))) {
      chosen = &slot;
    }
  }
  if (chosen->bytes < bytes) {
    ++allocations_;
    cudaError_t error = cudaSetDevice(gpu_);
    error = error != cudaSuccess ? error : cudaFree(chosen->memory);
    *chosen = {};
    error = error != cudaSuccess ? error : cudaMalloc(&chosen->memory, bytes);
    if (error != cudaSuccess) {
      return error;
    }
    chosen->bytes = bytes;
  }
  chosen->matrix = matrix;
  chosen->used = ++uses_;
  *to = chosen->memory;
  return launch(stream->multiplies_in == DType::bf16 ? narrow_rows_kernel<Bf16>
                                                     : narrow_rows_kernel<Fp16>,
                blocks_for(matrix.padded_rows * matrix.row() / k_four), k_threads, 0, stream,
                matrix, static_cast<std::uint16_t*>(chosen->memory));
}

void Narrowed::forget() {
  for (Slot& slot : slots_) {
    slot.used = 0;
  }
}

void Narrowed::forget(const TypedPointer& written, std::size_t count) {
  const auto at = [](const void* memory) { return reinterpret_cast<std::uintptr_t>(memory); };
  for (Slot& slot : slots_) {
    const float* const from = slot.matrix.from;
    const bool is_before = at(from + slot.matrix.rows * slot.matrix.stride) <= at(written.memory);
    const bool is_behind = at((written + count).memory) <= at(from);
    slot.used = is_before || is_behind ? slot.used : 0;
  }
}

void Narrowed::free() {
  cudaSetDevice(gpu_);
  for (Slot& slot : slots_) {
    cudaFree(slot.memory);
    slot = {};
  }
}

int multiply(const CudaStreamHandle* stream, const Matmul& matmul, bool& has_ended) {
  const Blas* blas = find_blas();
  if (blas == nullptr) {
    return k_no_blas;
  }
  const Matmul s = matmul.one(0);
  MatmulShape shape = shape_of(s, matmul.batch);
  MatmulMemory memory{.a = s.a.memory,
                      .b = s.b.memory,
                      .c = s.c.memory,
                      .added = s.plus ? s.plus.memory : s.c.memory,
                      .with = s.with.memory,
                      .beside = s.beside.memory};
  const DType rounded = stream->multiplies_in;
  int error = 0;
  // Rounds operands to the type asked for.
  const auto narrow = [&](const ConstTypedPointer& from, std::size_t rows, std::size_t columns,
                          std::size_t& row, const void*& to, std::size_t padded_rows = 0) {
    if (error == 0 && from.type == DType::f32) {
      const Narrowed::Matrix matrix{from.as<float>(), rows, columns, row,
                                    std::max(rows, padded_rows)};
      error = stream->narrowed->get(stream, matrix, &to);
      row = matrix.row();
    }
  };
  stream->narrowed->begin_product();
  if (s.is_rounded && matmul.batch == 1 && rounded != DType::f32) {
    shape.factor_type = rounded;
    narrow(s.a, s.a_is_turned ? s.k : s.m, s.a_is_turned ? s.m : s.k, shape.a_row, memory.a);
    narrow(s.b, s.b_is_turned ? s.n : s.k, s.b_is_turned ? s.k : s.n, shape.b_row, memory.b,
           s.b_rows);
    if (s.b_rows != 0) {
      (s.b_is_turned ? shape.n : shape.k) = s.b_rows;
    }
    shape.a_alignment = alignment_of(memory.a);
    shape.b_alignment = alignment_of(memory.b);
  } else if (s.a.type != s.b.type) {
    return k_no_blas;
  }
  shape.is_tf32 = stream->allows_tf32 && shape.factor_type == DType::f32;
  if (shape.type != DType::f32) { // In this type the library wants operands and bias alike.
    if (shape.factor_type != shape.type) {
      return k_no_blas;
    }
    if (has_bias(s.epilogue)) {
      std::size_t row = s.n;
      narrow(s.with, 1, s.n, row, memory.with);
    }
  }
  if (error != 0) {
    return error;
  }
  return run_planned(*blas, stream, shape, memory, can_follow(s), has_ended);
}

} // namespace trainer
