#include "trainer/device/cuda/products/matmul.h"

#include "trainer/device/cuda/fours.cuh"
#include "trainer/device/cuda/products/fp8.h"
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
  const int error = blas.plan(&stream, shape, plan);
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
    const float* const from =
        static_cast<const float*>(matrix.from.memory) + i / row * matrix.stride + column;
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
          .fp8 = Matmul::Fp8::none,
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

/// A plan with the epilogue if there is one; if `can_follow`, otherwise one without. Returns
/// k_no_blas if there is none.
int choose_plan(const Blas& blas, const CudaStreamHandle& stream, MatmulShape shape,
                bool can_follow, void** plan, bool& has_ended) {
  const Matmul::Epilogue asked = shape.epilogue;
  int error = plan_of(blas, stream, shape, plan);
  if (error == 0 && *plan == nullptr && can_follow) {
    shape.epilogue = Matmul::Epilogue::none;
    error = plan_of(blas, stream, shape, plan);
  }
  has_ended = shape.epilogue == asked;
  return error == 0 && *plan == nullptr ? k_no_blas : error;
}

/// Launches a product in FP8, with copies of A (m, k) and B (n, k); `s` has explicit strides.
int multiply_fp8(const Blas& blas, const CudaStreamHandle* stream, const Matmul& s,
                 bool& has_ended) {
  using To = Narrowed::To;
  using Layouts = Narrowed::Layouts;
  MatmulShape shape = shape_of(s, 1);
  shape.factor_type = DType::u8;
  shape.fp8 = s.fp8;
  shape.a_is_turned = false;
  shape.b_is_turned = true;
  shape.a_row = shape.b_row = s.k;
  shape.a_alignment = shape.b_alignment = k_most_alignment;
  void* plan = nullptr;
  int error = choose_plan(blas, *stream, shape, can_follow(s), &plan, has_ended);
  Narrowed& narrowed = *stream->narrowed;
  narrowed.begin_product();
  Narrowed::Fp8Copy a{};
  Narrowed::Fp8Copy b{};
  if (error == 0) {
    const bool is_gradient = s.fp8 == Matmul::Fp8::backward;
    // The product for the gradient of the layer's input follows, and takes the other layout.
    const Layouts layouts = !s.a_is_turned ? Layouts::as_is
                            : is_gradient  ? Layouts::both
                                           : Layouts::turned;
    const Narrowed::Matrix matrix{.from = s.a,
                                  .rows = s.a_is_turned ? s.k : s.m,
                                  .columns = s.a_is_turned ? s.m : s.k,
                                  .stride = s.a_row,
                                  .to = is_gradient ? To::e5m2 : To::e4m3};
    Fp8Sums sums;
    if (s.epilogue == Matmul::Epilogue::bias_gradient && has_fp8_sums(matrix)) {
      sums = {s.beside.as<float>(), s.accumulate};
    }
    error = narrowed.get_fp8(stream, matrix, layouts, sums, &a, has_ended);
  }
  if (error == 0) {
    bool has_summed = false;
    error = narrowed.get_fp8(stream,
                             {.from = s.b,
                              .rows = s.b_is_turned ? s.n : s.k,
                              .columns = s.b_is_turned ? s.k : s.n,
                              .stride = s.b_row,
                              .to = To::e4m3},
                             s.b_is_turned ? Layouts::as_is : Layouts::turned, {}, &b, has_summed);
  }
  const void* with = s.with.memory;
  if (error == 0 && has_ended && has_bias(s.epilogue) && s.with.type == DType::f32) {
    error = narrowed.get(stream, {.from = s.with, .rows = 1, .columns = s.n, .stride = s.n}, &with);
  }
  return error != 0 ? error
                    : blas.run(plan, stream,
                               {.a = s.a_is_turned ? a.turned : a.as_is,
                                .b = s.b_is_turned ? b.as_is : b.turned,
                                .c = s.c.memory,
                                .added = s.plus ? s.plus.memory : s.c.memory,
                                .with = with,
                                .beside = s.beside.memory,
                                .a_scale = a.scale,
                                .b_scale = b.scale});
}

} // namespace

template <typename Entry>
Entry* Narrowed::own_or_oldest(std::span<Entry> entries, const Matrix& matrix) const {
  Entry* oldest = nullptr;
  for (Entry& one : entries) {
    if (is_of(one, matrix)) {
      return &one;
    }
    const bool is_of_product = one.used > before_product_;
    if (!is_of_product && (oldest == nullptr || one.used < oldest->used)) {
      oldest = &one;
    }
  }
  return oldest;
}

int Narrowed::find_slot(const Matrix& matrix, std::size_t bytes, Slot** slot) {
  Slot* const chosen = own_or_oldest(std::span<Slot>(slots_), matrix);
  *slot = chosen;
  if (is_of(*chosen, matrix)) {
    chosen->used = ++uses_;
    return 0;
  }
  if (chosen->bytes < bytes) {
    gpu_.free(chosen->memory, chosen->bytes);
    *chosen = {};
    if (const int error = gpu_.allocate(bytes, &chosen->memory); error != 0) {
      return error;
    }
    chosen->bytes = bytes;
  }
  chosen->matrix = matrix;
  chosen->used = ++uses_;
  chosen->made = 0;
  return 0;
}

int Narrowed::get(const CudaStreamHandle* stream, const Matrix& matrix, const void** to) {
  Slot* slot = nullptr;
  const std::size_t bytes = matrix.padded_rows * matrix.row() * sizeof(std::uint16_t);
  const int error = find_slot(matrix, bytes, &slot);
  if (error != 0) {
    return error;
  }
  *to = slot->memory;
  if (slot->made != 0) {
    return 0;
  }
  slot->made = 1;
  return launch(stream->multiplies_in == DType::bf16 ? narrow_rows_kernel<Bf16>
                                                     : narrow_rows_kernel<OverflowingFp16>,
                blocks_for(matrix.padded_rows * matrix.row() / k_four), k_threads, 0, stream,
                matrix, static_cast<std::uint16_t*>(slot->memory));
}

int Narrowed::find_largest(const Matrix& matrix, Known** known, Fp8Largest** to) {
  static_assert(sizeof(Fp8Largest) <= k_largest_bytes);
  if (largest_ == nullptr) {
    const int error = gpu_.allocate(k_most_known * k_largest_bytes, &largest_);
    if (error != 0) {
      return error;
    }
  }
  Known* chosen = own_or_oldest(std::span<Known>(known_), matrix);
  const bool is_known = chosen != nullptr && is_of(*chosen, matrix);
  const bool is_free = chosen != nullptr && chosen->used == 0;
  if (!is_known && !is_free && known_.size() < k_most_known) {
    chosen = &known_.emplace_back();
  }
  if (!is_known) {
    chosen->matrix = matrix;
    chosen->blocks = 0;
  }
  chosen->used = ++uses_;
  *known = chosen;
  *to = reinterpret_cast<Fp8Largest*>(static_cast<std::uint8_t*>(largest_) +
                                      (chosen - known_.data()) * k_largest_bytes);
  return 0;
}

int Narrowed::expect_fp8(const Matrix& matrix, unsigned blocks, Fp8Largest** to) {
  Known* known = nullptr;
  const int error = find_largest(matrix, &known, to);
  if (error == 0) {
    known->blocks = blocks;
  }
  return error;
}

int Narrowed::get_fp8(const CudaStreamHandle* stream, const Matrix& matrix, Layouts layouts,
                      const Fp8Sums& sums, Fp8Copy* to, bool& has_summed) {
  const std::size_t values = matrix.rows * matrix.columns;
  Slot* slot = nullptr;
  Known* known = nullptr;
  Fp8Largest* largest = nullptr;
  int error = find_slot(matrix, bytes_in_fp8(values), &slot);
  if (error == 0) {
    error = find_largest(matrix, &known, &largest);
  }
  if (error != 0) {
    return error;
  }
  if (known->blocks == 0) {
    slot->made = 0; // Nor is its scale there any more.
    error = put_fp8_largest(stream, matrix, largest, &known->blocks);
  }
  auto* const as_is = static_cast<std::uint8_t*>(slot->memory);
  std::uint8_t* const turned = as_is + values; // A multiple of 16 · 16.
  *to = {as_is, turned, &largest->scale.from};
  const unsigned missing = static_cast<unsigned>(layouts) & ~slot->made;
  if (missing == 0) {
    return error;
  }
  slot->made |= missing;
  const auto if_missing = [&](Layouts layout, std::uint8_t* memory) {
    return (missing & static_cast<unsigned>(layout)) != 0 ? memory : nullptr;
  };
  std::uint8_t* const missing_turned = if_missing(Layouts::turned, turned);
  has_summed = has_summed || (sums.to != nullptr && missing_turned != nullptr);
  return error != 0 ? error
                    : put_fp8(stream, matrix, largest, known->blocks,
                              if_missing(Layouts::as_is, as_is), missing_turned, sums);
}

void Narrowed::forget() {
  for (Slot& slot : slots_) {
    slot.used = 0;
  }
  for (Known& known : known_) {
    known.used = 0;
  }
}

void Narrowed::forget(const TypedPointer& written, std::size_t count) {
  const auto at = [](const void* memory) { return reinterpret_cast<std::uintptr_t>(memory); };
  const auto forget_one = [&](auto& one) {
    const ConstTypedPointer from = one.matrix.from;
    const std::size_t values = one.matrix.rows * one.matrix.stride;
    const bool is_before = at((from + values).memory) <= at(written.memory);
    const bool is_behind = at((written + count).memory) <= at(from.memory);
    one.used = is_before || is_behind ? one.used : 0;
  };
  std::for_each(slots_.begin(), slots_.end(), forget_one);
  std::for_each(known_.begin(), known_.end(), forget_one);
}

void Narrowed::free() {
  for (Slot& slot : slots_) {
    gpu_.free(slot.memory, slot.bytes);
    slot = {};
  }
  gpu_.free(largest_, k_most_known * k_largest_bytes);
  largest_ = nullptr;
  known_.clear();
}

bool takes_fp8(const CudaStreamHandle& stream, const Matmul& s, std::size_t batch) {
  const auto fits = [](auto... counts) { return ((counts % k_fp8_multiple == 0) && ...); };
  const auto lies = [](const auto&... pointers) {
    return ((alignment_of(pointers.memory) >= k_fp8_multiple) && ...);
  };
  return stream.matmul_precision == MatmulPrecision::fp8 && stream.multiplies_in == DType::bf16 &&
         s.fp8 != Matmul::Fp8::none && batch == 1 && s.b_rows == 0 &&
         fits(s.m, s.n, s.k, s.a_row, s.b_row, s.c_row) && lies(s.a, s.b, s.c, s.plus);
}

int multiply(const CudaStreamHandle* stream, const Matmul& matmul, bool& has_ended) {
  const Blas* blas = find_blas();
  if (blas == nullptr) {
    return k_no_blas;
  }
  if (const int error = stream->workspace->make(); error != 0) {
    return error;
  }
  const Matmul s = matmul.one(0);
  if (takes_fp8(*stream, s, matmul.batch)) {
    const int error = multiply_fp8(*blas, stream, s, has_ended);
    if (error != k_no_blas) {
      return error;
    }
  }
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
      const Narrowed::Matrix matrix{from, rows, columns, row, std::max(rows, padded_rows)};
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
  shape.is_tf32 = stream->is_tf32() && shape.factor_type == DType::f32;
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
  void* plan = nullptr;
  error = choose_plan(*blas, *stream, shape, can_follow(s), &plan, has_ended);
  return error != 0 ? error : blas->run(plan, stream, memory);
}

} // namespace trainer
