#include "trainer/device/cuda/products/fp8.h"

#include "trainer/device/cuda/fours.cuh"

namespace trainer {
namespace {

/// 2 or 4 bytes read per value. The largest is the same in any order, so runs repeat.
template <typename Value>
__global__ void __launch_bounds__(k_threads)
    fp8_largest_kernel(std::size_t rows, std::size_t columns, std::size_t stride, const Value* from,
                       Fp8Largest* to) {
  DYNAMIC_SHARED(unsigned, room);
  constexpr int k_ahead = 4; // 64 bytes in flight per thread.
  const std::size_t across = columns / k_pack<Value>;
  const std::size_t count = rows * across;
  unsigned largest = 0;
  for (std::size_t i = first_item(); i < count; i += k_ahead * all_threads()) {
    Pack<Value, k_pack<Value>> ahead[k_ahead] = {};
    DTRAIN_UNROLL
    for (int k = 0; k < k_ahead; ++k) {
      const std::size_t at = i + k * all_threads();
      if (at < count) {
        const std::size_t row = rows == 1 ? 0 : at / across;
        ahead[k] = load<k_pack<Value>>(from + row * stride + (at - row * across) * k_pack<Value>);
      }
    }
    DTRAIN_UNROLL
    for (int k = 0; k < k_ahead; ++k) {
      largest = larger_of(ahead[k], largest);
    }
  }
  largest = block_largest(largest, room);
  if (threadIdx.x == 0) {
    to->of_block[blockIdx.x] = largest;
  }
}

/// The scale by what so many blocks have left. The grid's first block keeps it. `room`: one value
/// per warp, and one.
template <typename Type>
__device__ float fp8_factor(Fp8Largest* of, unsigned blocks, unsigned* room) {
  unsigned largest = 0;
  for (unsigned block = threadIdx.x; block < blocks; block += k_threads) {
    largest = of->of_block[block] > largest ? of->of_block[block] : largest;
  }
  largest = block_largest(largest, room);
  if (threadIdx.x == 0) {
    room[k_warps] = largest;
    if (blockIdx.x == 0) {
      of->scale = Type::scale_for(largest);
    }
  }
  __syncthreads();
  return Type::scale_for(room[k_warps]).to;
}

constexpr int k_tile_rows = 64;
constexpr int k_tile_columns = 64;
constexpr int k_four_bytes = 4;
/// Words of a row of the tile in shared memory; odd, so that a warp reads from all banks.
constexpr int k_tile_row = k_tile_columns / k_four_bytes + 1;

/// The codes of four values.
template <typename Type, typename Value, int N>
__device__ std::uint32_t fp8_codes(const Pack<Value, N>& values, int first, float factor) {
  const auto two = [&](int i) {
    return static_cast<std::uint32_t>(
        Type::narrow_two(float{values.at[i]} * factor, float{values.at[i + 1]} * factor));
  };
  return two(first) | (two(first + 2) << 16);
}

/// Rounds a matrix as it is, 16 values a thread at a time: 2 or 4 bytes read per value, and one
/// written.
template <typename Type, typename Value>
__global__ void __launch_bounds__(k_threads)
    fp8_kernel(std::size_t rows, std::size_t columns, std::size_t stride, const Value* from,
               Fp8Largest* largest, unsigned blocks, std::uint8_t* to) {
  DYNAMIC_SHARED(unsigned, room);
  constexpr int k_at_once = 16;
  constexpr int k_packs = k_at_once / k_pack<Value>;
  const std::size_t across = columns / k_at_once;
  const std::size_t count = rows * across;
  const float factor = fp8_factor<Type>(largest, blocks, room);
  for (std::size_t at = first_item(); at < count; at += all_threads()) {
    const std::size_t row = rows == 1 ? 0 : at / across;
    const Value* const its = from + row * stride + (at - row * across) * k_at_once;
    Pack<Value, k_pack<Value>> values[k_packs];
    DTRAIN_UNROLL
    for (int i = 0; i < k_packs; ++i) {
      values[i] = load<k_pack<Value>>(its + i * k_pack<Value>);
    }
    Pack<std::uint32_t, k_at_once / k_four_bytes> codes;
    DTRAIN_UNROLL
    for (int i = 0; i < k_at_once / k_four_bytes; ++i) {
      constexpr int k_fours = k_pack<Value> / k_four_bytes;
      codes.at[i] = fp8_codes<Type>(values[i / k_fours], i % k_fours * k_four_bytes, factor);
    }
    store(codes, reinterpret_cast<std::uint32_t*>(to) + at * (k_at_once / k_four_bytes));
  }
}

/// Adds up the columns of a tile, of which each thread has the sums of k_pack columns of some rows,
/// in every (k_threads / across)-th row; the last of the blocks below each other those of them all.
template <int N>
__device__ void sum_columns(const Fp8Sums& sums, float* partial, unsigned* arrived, float (&own)[N],
                            unsigned row_tile, unsigned row_tiles, std::size_t first_column,
                            std::size_t columns, float* room) {
  constexpr int k_across = k_tile_columns / N; // Threads.
  DTRAIN_UNROLL
  for (int i = 0; i < N; ++i) {
    DTRAIN_UNROLL
    for (int other = k_across; other < k_warp_lanes; other *= 2) {
      own[i] += __shfl_xor_sync(k_all_lanes, own[i], other);
    }
  }
  const int lane = static_cast<int>(threadIdx.x) % k_warp_lanes;
  const int warp = static_cast<int>(threadIdx.x) / k_warp_lanes;
  __syncthreads();
  if (lane < k_across) {
    DTRAIN_UNROLL
    for (int i = 0; i < N; ++i) {
      room[warp * k_tile_columns + lane * N + i] = own[i];
    }
  }
  __syncthreads();
  constexpr int k_groups = k_threads / k_tile_columns;
  constexpr int k_ahead = 8;
  const int at = static_cast<int>(threadIdx.x) % k_tile_columns;
  const unsigned group = threadIdx.x / k_tile_columns;
  const std::size_t column = first_column + at;
  const bool is_whole = group == 0 && column < columns;
  float sum = 0;
  for (int i = 0; is_whole && i < k_warps; ++i) {
    sum += room[i * k_tile_columns + at];
  }
  if (is_whole) {
    partial[row_tile * columns + column] = sum;
  }
  if (!is_last_block(arrived + first_column / k_tile_columns, row_tiles, room)) {
    return;
  }
  sum = 0;
  for (unsigned row = group; column < columns && row < row_tiles; row += k_ahead * k_groups) {
    float ahead[k_ahead];
    DTRAIN_UNROLL
    for (int i = 0; i < k_ahead; ++i) {
      const unsigned its = row + i * k_groups;
      ahead[i] = its < row_tiles ? partial[its * columns + column] : 0.0F;
    }
    DTRAIN_UNROLL
    for (int i = 0; i < k_ahead; ++i) {
      sum += ahead[i];
    }
  }
  room[threadIdx.x] = sum;
  __syncthreads();
  if (is_whole) {
    for (int i = 1; i < k_groups; ++i) {
      sum += room[i * k_tile_columns + at];
    }
    sums.to[column] = sums.accumulate ? sums.to[column] + sum : sum;
  }
}

/// A block rounds a tile of 64 × 64 values: 2 or 4 bytes read per value, and one written for
/// each layout. For the transposed one the tile goes through shared memory, from which a thread
/// takes 4 columns of 8 rows; a warp writes whole sectors of 32 bytes.
template <bool HasSums, typename Type, typename Value>
__global__ void __launch_bounds__(k_threads)
    fp8_turn_kernel(std::size_t rows, std::size_t columns, std::size_t stride, const Value* from,
                    Fp8Largest* largest, unsigned blocks, std::uint8_t* to, std::uint8_t* turned,
                    Fp8Sums sums, float* partial, unsigned* arrived) {
  DYNAMIC_SHARED(std::uint32_t, tile);
  constexpr int k_words = k_pack<Value> / k_four_bytes;
  constexpr int k_across = k_tile_columns / k_pack<Value>; // Threads.
  constexpr int k_at_once = k_threads / k_across;          // Rows.
  constexpr int k_passes = k_tile_rows / k_at_once;
  const auto across = static_cast<unsigned>((columns + k_tile_columns - 1) / k_tile_columns);
  const unsigned row_tile = blockIdx.x / across;
  const std::size_t first_row = std::size_t{row_tile} * k_tile_rows;
  const std::size_t first_column = std::size_t{blockIdx.x % across} * k_tile_columns;
  const int own_row = static_cast<int>(threadIdx.x) / k_across;
  const int own_column = static_cast<int>(threadIdx.x) % k_across * k_pack<Value>;
  const std::size_t column = first_column + own_column;
  Pack<Value, k_pack<Value>> values[k_passes] = {};
  DTRAIN_UNROLL
  for (int pass = 0; pass < k_passes; ++pass) {
    const std::size_t row = first_row + own_row + pass * k_at_once;
    if (row < rows && column < columns) {
      values[pass] = load<k_pack<Value>>(from + row * stride + column);
    }
  }
  const float factor = fp8_factor<Type>(largest, blocks, tile);
  __syncthreads();
  float own_sums[k_pack<Value>] = {};
  DTRAIN_UNROLL
  for (int pass = 0; pass < k_passes; ++pass) {
    const int tile_row = own_row + pass * k_at_once;
    Pack<std::uint32_t, k_words> codes;
    DTRAIN_UNROLL
    for (int i = 0; i < k_words; ++i) {
      codes.at[i] = fp8_codes<Type>(values[pass], i * k_four_bytes, factor);
      tile[tile_row * k_tile_row + own_column / k_four_bytes + i] = codes.at[i];
    }
    const std::size_t row = first_row + tile_row;
    if (to != nullptr && row < rows && column < columns) {
      store(codes, reinterpret_cast<std::uint32_t*>(to + row * columns + column));
    }
    DTRAIN_UNROLL
    for (int i = 0; i < k_pack<Value>; ++i) {
      own_sums[i] += float{values[pass].at[i]};
    }
  }
  __syncthreads();
  // A warp: 4 × 8 rows, and 8 × 4 columns.
  constexpr int k_rows = 8;
  constexpr int k_warps_down = k_tile_rows / (4 * k_rows);
  constexpr int k_columns_on = k_warps / k_warps_down * 8; // In words.
  const int lane = static_cast<int>(threadIdx.x) % k_warp_lanes;
  const int warp = static_cast<int>(threadIdx.x) / k_warp_lanes;
  const int tile_row = (lane % 4 + warp % k_warps_down * 4) * k_rows;
  const std::size_t row = first_row + tile_row;
  DTRAIN_UNROLL
  for (int word = lane / 4 + warp / k_warps_down * 8; word < k_tile_columns / k_four_bytes;
       word += k_columns_on) {
    const std::size_t its_column = first_column + word * k_four_bytes;
    if (row >= rows || its_column >= columns) {
      break;
    }
    std::uint32_t words[k_rows];
    DTRAIN_UNROLL
    for (int i = 0; i < k_rows; ++i) {
      words[i] = tile[(tile_row + i) * k_tile_row + word];
    }
    DTRAIN_UNROLL
    for (int c = 0; c < k_four_bytes; ++c) {
      Pack<std::uint8_t, k_rows> bytes;
      DTRAIN_UNROLL
      for (int i = 0; i < k_rows; ++i) {
        bytes.at[i] = static_cast<std::uint8_t>(words[i] >> (8 * c));
      }
      store(bytes, turned + (its_column + c) * rows + row);
    }
  }
  if constexpr (HasSums) {
    sum_columns(sums, partial, arrived, own_sums, row_tile, gridDim.x / across, first_column,
                columns, reinterpret_cast<float*>(tile));
  }
}

/// Calls act with the type to round to, and with a value of the matrix's.
template <typename Act>
int by_types(const Narrowed::Matrix& matrix, const Act& act) {
  return by_type(matrix.from.type, [&](auto value) {
    return matrix.to == Narrowed::To::e5m2 ? act(E5m2{}, value) : act(E4m3{}, value);
  });
}

} // namespace

int put_fp8_largest(const CudaStreamHandle* stream, const Narrowed::Matrix& matrix, Fp8Largest* to,
                    unsigned* blocks) {
  const bool is_contiguous = matrix.stride == matrix.columns;
  const std::size_t values = matrix.rows * matrix.columns;
  return by_type(matrix.from.type, [&](auto value) {
    using Value = decltype(value);
    *blocks = blocks_for(values / k_pack<Value>, k_threads, k_fp8_blocks);
    return launch(fp8_largest_kernel<Value>, *blocks, k_threads, k_warps * sizeof(unsigned), stream,
                  is_contiguous ? std::size_t{1} : matrix.rows,
                  is_contiguous ? values : matrix.columns, matrix.stride, matrix.from.as<Value>(),
                  to);
  });
}

int put_fp8(const CudaStreamHandle* stream, const Narrowed::Matrix& matrix, Fp8Largest* largest,
            unsigned blocks, std::uint8_t* to, std::uint8_t* turned, const Fp8Sums& sums) {
  const bool is_contiguous = matrix.stride == matrix.columns;
  const std::size_t values = matrix.rows * matrix.columns;
  return by_types(matrix, [&](auto type, auto value) {
    using Type = decltype(type);
    using Value = decltype(value);
    if (turned == nullptr) {
      return launch(fp8_kernel<Type, Value>, blocks_for(values / k_fp8_multiple), k_threads,
                    (k_warps + 1) * sizeof(unsigned), stream,
                    is_contiguous ? std::size_t{1} : matrix.rows,
                    is_contiguous ? values : matrix.columns, matrix.stride, matrix.from.as<Value>(),
                    largest, blocks, to);
    }
    auto* const kernel = sums.to != nullptr ? fp8_turn_kernel<true, Type, Value>
                                            : fp8_turn_kernel<false, Type, Value>;
    return launch(kernel,
                  tiles_of(matrix.columns, k_tile_columns) * tiles_of(matrix.rows, k_tile_rows),
                  k_threads, k_tile_rows * k_tile_row * sizeof(std::uint32_t), stream, matrix.rows,
                  matrix.columns, matrix.stride, matrix.from.as<Value>(), largest, blocks, to,
                  turned, sums, reinterpret_cast<float*>(stream->partial), stream->arrived);
  });
}

bool has_fp8_sums(const Narrowed::Matrix& matrix) {
  const std::size_t down = tiles_of(matrix.rows, k_tile_rows);
  return matrix.columns <= k_cuda_arrivals * k_tile_columns &&
         down * matrix.columns <= 2 * k_cuda_partials;
}

} // namespace trainer
