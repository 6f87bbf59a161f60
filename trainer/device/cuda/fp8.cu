#include "trainer/device/cuda/fp8.h"

#include "trainer/device/cuda/fours.cuh"

namespace trainer {
namespace {

/// Values that a thread moves at a time, 16 bytes.
template <typename Value>
constexpr int k_pack = 16 / sizeof(Value);

/// The block's largest value, in its first thread. `room`: one value per warp.
__device__ unsigned block_largest(unsigned value, unsigned* room) {
  const auto larger = [](unsigned a, unsigned b) { return a > b ? a : b; };
  for (int other = k_warp_lanes / 2; other > 0; other /= 2) {
    value = larger(value, __shfl_xor_sync(k_all_lanes, value, other));
  }
  if (threadIdx.x % k_warp_lanes == 0) {
    room[threadIdx.x / k_warp_lanes] = value;
  }
  __syncthreads();
  for (int warp = 0; threadIdx.x == 0 && warp < k_warps; ++warp) {
    value = larger(value, room[warp]);
  }
  return value;
}

/// 2 or 4 bytes read per value. The bits of magnitudes are in the order of the magnitudes, and
/// those of NaNs behind all others; the largest is the same in any order, so runs repeat. The last
/// block takes the largest of what all leave in `partial`.
template <typename Type, typename Value>
__global__ void __launch_bounds__(k_threads)
    fp8_scale_kernel(std::size_t rows, std::size_t columns, std::size_t stride, const Value* from,
                     unsigned* partial, unsigned* arrived, Fp8Scale* scale) {
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
      DTRAIN_UNROLL
      for (int j = 0; j < k_pack<Value>; ++j) {
        const unsigned size = float_bits(ahead[k].at[j]) & k_float_size;
        largest = size > largest ? size : largest;
      }
    }
  }
  largest = block_largest(largest, room);
  if (threadIdx.x == 0) {
    partial[blockIdx.x] = largest;
  }
  if (!is_last_block(arrived, gridDim.x, room)) {
    return;
  }
  largest = 0;
  for (unsigned block = threadIdx.x; block < gridDim.x; block += blockDim.x) {
    largest = partial[block] > largest ? partial[block] : largest;
  }
  largest = block_largest(largest, room);
  if (threadIdx.x == 0) {
    *scale = Type::scale_for(largest);
  }
}

constexpr int k_tile_rows = 128;
constexpr int k_tile_columns = 64;
constexpr int k_four_bytes = 4;
/// Words of a row of the tile in shared memory; odd, so that a warp reads from all banks.
constexpr int k_tile_row = k_tile_columns / k_four_bytes + 1;

/// A block rounds a tile of 128 × 64 values: 2 or 4 bytes read per value, and one written for each
/// layout. For the transposed one the tile goes through shared memory, from which a thread takes 4
/// columns of 8 rows; a warp writes whole sectors of 32 bytes.
template <typename Type, typename Value>
__global__ void __launch_bounds__(k_threads)
    fp8_kernel(std::size_t rows, std::size_t columns, std::size_t stride, const Value* from,
               const Fp8Scale* scale, std::uint8_t* to, std::uint8_t* turned) {
  DYNAMIC_SHARED(std::uint32_t, tile);
  constexpr int k_words = k_pack<Value> / k_four_bytes;
  constexpr int k_across = k_tile_columns / k_pack<Value>; // Threads.
  constexpr int k_at_once = k_threads / k_across;          // Rows.
  constexpr int k_passes = k_tile_rows / k_at_once;
  const std::size_t first_row = std::size_t{blockIdx.x} * k_tile_rows;
  const std::size_t first_column = std::size_t{blockIdx.y} * k_tile_columns;
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
  const float factor = scale->to;
  DTRAIN_UNROLL
  for (int pass = 0; pass < k_passes; ++pass) {
    const int tile_row = own_row + pass * k_at_once;
    const auto code = [&](int i) {
      return static_cast<std::uint32_t>(Type::narrow_two(float{values[pass].at[i]} * factor,
                                                         float{values[pass].at[i + 1]} * factor));
    };
    Pack<std::uint32_t, k_words> codes;
    DTRAIN_UNROLL
    for (int i = 0; i < k_words; ++i) {
      codes.at[i] = code(i * k_four_bytes) | (code(i * k_four_bytes + 2) << 16);
      if (turned != nullptr) {
        tile[tile_row * k_tile_row + own_column / k_four_bytes + i] = codes.at[i];
      }
    }
    const std::size_t row = first_row + tile_row;
    if (to != nullptr && row < rows && column < columns) {
      store(codes, reinterpret_cast<std::uint32_t*>(to + row * columns + column));
    }
  }
  if (turned == nullptr) {
    return;
  }
  __syncthreads();
  // A warp: 4 × 8 rows, and 8 × 4 columns.
  constexpr int k_rows = 8;
  const int lane = static_cast<int>(threadIdx.x) % k_warp_lanes;
  const int warp = static_cast<int>(threadIdx.x) / k_warp_lanes;
  const int tile_row = (lane % 4 + warp % 4 * 4) * k_rows;
  const int tile_word = lane / 4 + warp / 4 * 8;
  const std::size_t row = first_row + tile_row;
  const std::size_t its_column = first_column + tile_word * k_four_bytes;
  if (row >= rows || its_column >= columns) {
    return;
  }
  std::uint32_t words[k_rows];
  DTRAIN_UNROLL
  for (int i = 0; i < k_rows; ++i) {
    words[i] = tile[(tile_row + i) * k_tile_row + tile_word];
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

/// Calls act with the type to round to, and with a value of the matrix's.
template <typename Act>
int by_types(const Narrowed::Matrix& matrix, const Act& act) {
  return by_type(matrix.from.type, [&](auto value) {
    return matrix.to == Narrowed::To::e5m2 ? act(E5m2{}, value) : act(E4m3{}, value);
  });
}

} // namespace

int put_fp8_scale(const CudaStreamHandle* stream, const Narrowed::Matrix& matrix, Fp8Scale* scale) {
  const bool is_contiguous = matrix.stride == matrix.columns;
  const std::size_t values = matrix.rows * matrix.columns;
  return by_types(matrix, [&](auto type, auto value) {
    using Value = decltype(value);
    return launch(fp8_scale_kernel<decltype(type), Value>, blocks_for(values / k_pack<Value>),
                  k_threads, k_warps * sizeof(unsigned), stream,
                  is_contiguous ? std::size_t{1} : matrix.rows,
                  is_contiguous ? values : matrix.columns, matrix.stride, matrix.from.as<Value>(),
                  reinterpret_cast<unsigned*>(stream->partial), stream->arrived, scale);
  });
}

int put_fp8(const CudaStreamHandle* stream, const Narrowed::Matrix& matrix, const Fp8Scale* scale,
            std::uint8_t* to, std::uint8_t* turned) {
  const auto tiles = [](std::size_t all, std::size_t each) {
    return static_cast<unsigned>((all + each - 1) / each);
  };
  return by_types(matrix, [&](auto type, auto value) {
    using Value = decltype(value);
    return launch(fp8_kernel<decltype(type), Value>,
                  dim3(tiles(matrix.rows, k_tile_rows), tiles(matrix.columns, k_tile_columns)),
                  k_threads, k_tile_rows * k_tile_row * sizeof(std::uint32_t), stream, matrix.rows,
                  matrix.columns, matrix.stride, matrix.from.as<Value>(), scale, to, turned);
  });
}

} // namespace trainer
