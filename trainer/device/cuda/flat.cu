// Kernels over flat ranges, all bound by memory. Beside each are the bytes that it reads and writes
// per value: a GPU of 4.8 TB/s processes at most 4.8e12 / bytes values a second. Neighbouring
// threads read neighbouring values.
#include "trainer/device/cuda/fours.cuh"
#include "trainer/device/cuda/kernels.h"
#include "trainer/device/halves.h"

namespace trainer {
namespace {

/// A byte as a value from 0 to 1.
struct Scaled {
  __device__ void operator()(std::uint8_t byte, float& value) const {
    value = static_cast<float>(byte) * (1.0F / 255.0F);
  }
};

/// The share of block `block` of `blocks`, which takes a row at a time: 1 byte read, 4 written.
__device__ void gather(const Gathering& g, unsigned block, unsigned blocks) {
  for (std::size_t row = block; row < g.rows; row += blocks) {
    const std::uint64_t sample = g.order(g.first + row);
    each(of_block(), g.features, Scaled(), g.images + sample * g.features, g.to + row * g.features);
    if (threadIdx.x == 0) {
      g.to_labels[row] = label_at(g.labels, g.label_type, sample);
    }
  }
}

/// The first block starts the step's state while the others gather.
__global__ void begin_kernel(StepRule rule, StepInput input, StepState* state,
                             Gathering gathering) {
  if (blockIdx.x > 0) {
    gather(gathering, blockIdx.x - 1, gridDim.x - 1);
  } else if (threadIdx.x == 0) {
    begin_step(rule, input, *state);
  }
}

__global__ void prepare_kernel(StepRule rule, const SquareSum* squares, StepState* state,
                               StepState* told) {
  if (threadIdx.x == 0) {
    prepare_step(rule, *squares, *state);
    if (told != nullptr) {
      *told = *state;
    }
  }
}

/// each() over parameters and the other arrays; with a bf16 copy (`Rounds`) it writes 2 bytes more.
template <bool Rounds, typename Work, typename... T>
__device__ void each_updated(std::size_t n, const Work& work, const Parameters& parameters,
                             T*... arrays) {
  if constexpr (Rounds) {
    each(
        of_grid(), n,
        [&](Bf16Value& rounded, float& p, auto&... values) {
          work(p, values...);
          rounded = p;
        },
        parameters.rounded, parameters.values, arrays...);
  } else {
    each(of_grid(), n, work, parameters.values, arrays...);
  }
}

// 12 bytes read, 8 written; 6 FLOP.
template <bool Rounds>
__global__ void sgd_kernel(std::size_t n, UpdateRule r, const StepState* state,
                           const float* gradient, float* m, Parameters parameters) {
  if (is_skipped(*state)) {
    return;
  }
  const float factor = state->factor;
  const float step_size = state->step_size;
  each_updated<Rounds>(
      n,
      [&](float& p, float g, float& m_new) {
        m_new = r.beta1 * m_new + (g * factor + r.l2 * p);
        p -= step_size * m_new;
      },
      parameters, gradient, m);
}

// 16 bytes read, 12 written; 16 FLOP.
template <bool Rounds>
__global__ void adam_kernel(std::size_t n, UpdateRule r, const StepState* state,
                            const float* gradient, float* m, float* v, Parameters parameters) {
  if (is_skipped(*state)) {
    return;
  }
  const float factor = state->factor;
  const float shrink = shrink_of(r, *state);
  const float step_size = state->step_size;
  const float correction2 = state->inverse_correction2;
  each_updated<Rounds>(
      n,
      [&](float& p, float raw, float& m_new, float& v_new) {
        const float g = raw * factor + r.l2 * p;
        m_new = r.beta1 * m_new + (1 - r.beta1) * g;
        v_new = r.beta2 * v_new + (1 - r.beta2) * (g * g);
        p = shrink * p - step_size * m_new / (sqrtf(v_new) * correction2 + r.epsilon);
      },
      parameters, gradient, m, v);
}

// LAMB: the direction u, 16 bytes read and 12 written; its norm and that of the parameters, 8 read;
// the step, 8 read and 4 written.
__global__ void lamb_direction_kernel(std::size_t n, UpdateRule r, const StepState* state,
                                      const float* gradient, float* m, float* v, float* u,
                                      const float* parameter) {
  if (is_skipped(*state)) {
    return;
  }
  const float factor = state->factor;
  const float step_size = state->step_size;
  const float correction2 = state->inverse_correction2;
  const auto decay = static_cast<float>(r.decay);
  each(
      of_grid(), n,
      [&](float raw, float& m_new, float& v_new, float& u_new, float p) {
        const float g = raw * factor;
        m_new = r.beta1 * m_new + (1 - r.beta1) * g;
        v_new = r.beta2 * v_new + (1 - r.beta2) * (g * g);
        u_new = step_size * m_new / (sqrtf(v_new) * correction2 + r.epsilon) + decay * p;
      },
      gradient, m, v, u, parameter);
}

__global__ void __launch_bounds__(k_threads)
    lamb_norms(std::size_t n, const float* parameter, const float* u, double* partial,
               unsigned* arrived, double* squares) {
  DYNAMIC_SHARED(double, room);
  double sums[2] = {0, 0};
  each(
      of_grid(), n,
      [&](float p, float direction) {
        sums[0] += double{p} * double{p};
        sums[1] += double{direction} * double{direction};
      },
      parameter, u);
  if (grid_sums(sums, room, partial, arrived) && threadIdx.x == 0) {
    squares[0] = sums[0];
    squares[1] = sums[1];
  }
}

template <bool Rounds>
__global__ void lamb_take_kernel(std::size_t n, const StepState* state, const double* squares,
                                 const float* u, Parameters parameters) {
  if (is_skipped(*state)) {
    return;
  }
  DYNAMIC_SHARED(float, step);
  if (threadIdx.x == 0) {
    const double p = sqrt(squares[0]);
    const double d = sqrt(squares[1]);
    *step = static_cast<float>(state->learning_rate * (p > 0 && d > 0 ? p / d : 1.0));
  }
  __syncthreads();
  const float by = *step;
  each_updated<Rounds>(
      n, [&](float& p, float direction) { p -= by * direction; }, parameters, u);
}

// Muon: the first kernel reads 8 bytes and writes 8, the second reads 8 and writes 4.
__global__ void muon_direction_kernel(std::size_t n, UpdateRule r, const StepState* state,
                                      const float* gradient, float* m, float* u) {
  if (is_skipped(*state)) {
    return;
  }
  const float factor = state->factor;
  each(
      of_grid(), n,
      [&](float raw, float& m_new, float& u_new) {
        const float g = raw * factor;
        m_new = r.beta1 * m_new + (1 - r.beta1) * g;
        u_new = (1 - r.beta1) * g + r.beta1 * m_new;
      },
      gradient, m, u);
}

template <bool Rounds>
__global__ void muon_take_kernel(std::size_t n, UpdateRule r, const StepState* state, float ratio,
                                 const float* u, Parameters parameters) {
  if (is_skipped(*state)) {
    return;
  }
  const float shrink = shrink_of(r, *state);
  const auto rate = static_cast<float>(state->learning_rate * double{ratio});
  each_updated<Rounds>(
      n, [&](float& p, float direction) { p = shrink * p - rate * direction; }, parameters, u);
}

// 4 bytes read, 4 written.
__global__ void normalise_kernel(std::size_t n, const SquareSum* squares, float* x) {
  const float by = inverse_norm(squares->sum);
  each(
      of_grid(), n, [&](float& value) { value *= by; }, x);
}

// 8 bytes read, 4 written.
__global__ void blend_kernel(std::size_t n, float a, const float* x, float b, float* y) {
  each(
      of_grid(), n, [&](float from, float& to) { to = a * from + b * to; }, x, y);
}

/// The first of n values that is not finite, as found by the threads of a block; infinity: all are.
__device__ double first_not_finite(std::size_t n, const float* values, double* room) {
  std::size_t i = threadIdx.x;
  while (i < n && fabsf(values[i]) <= k_largest_float) {
    i += blockDim.x;
  }
  return block_least(i < n ? static_cast<double>(i) : k_infinity, room);
}

// 4 bytes read, and once more by one block if the sum is not finite.
__global__ void __launch_bounds__(k_threads)
    squares_kernel(std::size_t n, const float* values, std::size_t place, double* partial,
                   unsigned* arrived, SquareSum* to) {
  DYNAMIC_SHARED(double, room);
  double sum[1] = {0};
  each(
      of_grid(), n, [&](float value) { sum[0] += double{value} * double{value}; }, values);
  if (!grid_sums(sum, room, partial, arrived)) {
    return;
  }
  SquareSum found;
  found.sum = sum[0];
  if (!(sum[0] < k_infinity)) { // The same in all threads.
    __syncthreads();            // They have read the room.
    found.not_finite = static_cast<double>(place) + first_not_finite(n, values, room);
  }
  if (threadIdx.x == 0) {
    *to = found;
  }
}

// A few values, summed by one thread in the order of the CPU's kernel.
__global__ void sum_kernel(std::size_t n, std::size_t stride, const SquareSum* from,
                           SquareSum* to) {
  if (threadIdx.x == 0) {
    *to = sum_of(n, stride, from);
  }
}

// 1 byte read, 4 written.
__global__ void bytes_kernel(std::size_t n, const std::uint8_t* from, float* to) {
  each(of_grid(), n, Scaled(), from, to);
}

__global__ void gather_kernel(Gathering gathering) { gather(gathering, blockIdx.x, gridDim.x); }

// 4 bytes read and 2 written, or the reverse; about 10 integer operations, hidden by the loads.
template <typename Half>
__global__ void narrow_kernel(std::size_t n, const float* from, std::uint16_t* to) {
  each(
      of_grid(), n, [](float value, std::uint16_t& half) { half = Half::narrow(value); }, from, to);
}
template <typename Half>
__global__ void widen_kernel(std::size_t n, const std::uint16_t* from, float* to) {
  each(
      of_grid(), n, [](std::uint16_t half, float& value) { value = Half::widen(half); }, from, to);
}

constexpr std::size_t k_room = k_warps * sizeof(double);

int put_begin(const CudaStreamHandle* stream, const StepRule& rule, const StepInput& input,
              StepState* state, const Gathering* gathering) {
  const Gathering some = gathering != nullptr ? *gathering : Gathering{};
  const unsigned blocks = some.rows > 0 ? 1 + blocks_for(some.rows, 1) : 1;
  return launch(begin_kernel, blocks, k_threads, 0, stream, rule, input, state, some);
}

int put_prepare(const CudaStreamHandle* stream, const StepRule& rule, const SquareSum* squares,
                StepState* state, StepState* told) {
  return launch(prepare_kernel, 1, k_warp_lanes, 0, stream, rule, squares, state, told);
}

int put_sgd(const CudaStreamHandle* stream, std::size_t n, const UpdateRule& rule,
            const StepState* state, const float* gradient, float* m, const Parameters& parameters) {
  return launch(parameters.rounded != nullptr ? sgd_kernel<true> : sgd_kernel<false>,
                blocks_of_fours(n), k_threads, 0, stream, n, rule, state, gradient, m, parameters);
}

int put_adam(const CudaStreamHandle* stream, std::size_t n, const UpdateRule& rule,
             const StepState* state, const float* gradient, float* m, float* v,
             const Parameters& parameters) {
  return launch(parameters.rounded != nullptr ? adam_kernel<true> : adam_kernel<false>,
                blocks_of_fours(n), k_threads, 0, stream, n, rule, state, gradient, m, v,
                parameters);
}

int put_lamb_direction(const CudaStreamHandle* stream, std::size_t n, const UpdateRule& rule,
                       const StepState* state, const float* gradient, float* m, float* v, float* u,
                       const float* parameters) {
  return launch(lamb_direction_kernel, blocks_of_fours(n), k_threads, 0, stream, n, rule, state,
                gradient, m, v, u, parameters);
}

int put_lamb_take(const CudaStreamHandle* stream, std::size_t n, const StepState* state,
                  const float* u, const Parameters& parameters) {
  double* const squares = stream->partial + 2 * k_most_blocks;
  const int error =
      launch(lamb_norms, blocks_of_fours(n, k_most_blocks), k_threads, 2 * k_room, stream, n,
             parameters.values, u, stream->partial, stream->arrived, squares);
  return error != 0 ? error
                    : launch(parameters.rounded != nullptr ? lamb_take_kernel<true>
                                                           : lamb_take_kernel<false>,
                             blocks_of_fours(n), k_threads, sizeof(float), stream, n, state,
                             squares, u, parameters);
}

int put_muon_direction(const CudaStreamHandle* stream, std::size_t n, const UpdateRule& rule,
                       const StepState* state, const float* gradient, float* m, float* u) {
  return launch(muon_direction_kernel, blocks_of_fours(n), k_threads, 0, stream, n, rule, state,
                gradient, m, u);
}

int put_muon_take(const CudaStreamHandle* stream, std::size_t n, const UpdateRule& rule,
                  const StepState* state, float ratio, const float* u,
                  const Parameters& parameters) {
  return launch(parameters.rounded != nullptr ? muon_take_kernel<true> : muon_take_kernel<false>,
                blocks_of_fours(n), k_threads, 0, stream, n, rule, state, ratio, u, parameters);
}

int put_normalise(const CudaStreamHandle* stream, std::size_t n, const SquareSum* squares,
                  float* x) {
  return launch(normalise_kernel, blocks_of_fours(n), k_threads, 0, stream, n, squares, x);
}

int put_blend(const CudaStreamHandle* stream, std::size_t n, float a, const float* x, float b,
              float* y) {
  return launch(blend_kernel, blocks_of_fours(n), k_threads, 0, stream, n, a, x, b, y);
}

int put_squares(const CudaStreamHandle* stream, std::size_t n, const float* values,
                std::size_t place, SquareSum* to) {
  return launch(squares_kernel, blocks_of_fours(n, k_most_blocks), k_threads, k_room, stream, n,
                values, place, stream->partial, stream->arrived, to);
}

int put_sum(const CudaStreamHandle* stream, std::size_t n, std::size_t stride,
            const SquareSum* from, SquareSum* to) {
  return launch(sum_kernel, 1, k_warp_lanes, 0, stream, n, stride, from, to);
}

int put_bytes_to_floats(const CudaStreamHandle* stream, std::size_t n, const std::uint8_t* from,
                        float* to) {
  return launch(bytes_kernel, blocks_of_fours(n), k_threads, 0, stream, n, from, to);
}

int put_gather(const CudaStreamHandle* stream, const Gathering& gathering) {
  return launch(gather_kernel, blocks_for(gathering.rows, 1), k_threads, 0, stream, gathering);
}

int put_narrow(const CudaStreamHandle* stream, std::size_t n, DType type, const float* from,
               void* to) {
  return launch(type == DType::bf16 ? narrow_kernel<Bf16> : narrow_kernel<Fp16>, blocks_of_fours(n),
                k_threads, 0, stream, n, from, static_cast<std::uint16_t*>(to));
}

int put_widen(const CudaStreamHandle* stream, std::size_t n, DType type, const void* from,
              float* to) {
  return launch(type == DType::bf16 ? widen_kernel<Bf16> : widen_kernel<Fp16>, blocks_of_fours(n),
                k_threads, 0, stream, n, static_cast<const std::uint16_t*>(from), to);
}

} // namespace

void set_flat_kernels(Kernels& kernels) {
  DTRAIN_PUT(kernels, begin);
  DTRAIN_PUT(kernels, prepare);
  DTRAIN_PUT(kernels, sgd);
  DTRAIN_PUT(kernels, adam);
  DTRAIN_PUT(kernels, lamb_direction);
  DTRAIN_PUT(kernels, lamb_take);
  DTRAIN_PUT(kernels, muon_direction);
  DTRAIN_PUT(kernels, muon_take);
  DTRAIN_PUT(kernels, normalise);
  DTRAIN_PUT(kernels, blend);
  DTRAIN_PUT(kernels, squares);
  DTRAIN_PUT(kernels, sum);
  DTRAIN_PUT(kernels, bytes_to_floats);
  DTRAIN_PUT(kernels, gather);
  DTRAIN_PUT(kernels, narrow);
  DTRAIN_PUT(kernels, widen);
}

} // namespace trainer
