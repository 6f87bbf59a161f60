// Runs CUDA kernel sources on the CPU, for tests: a grid's blocks one after another, a block's
// threads as fibers (Boost.Context) of one OS thread, switched at barriers and warp collectives.
//
// What it finds that a run on a GPU does not: __syncthreads in diverged code, a warp collective
// whose mask names a lane that never comes, and, with the address sanitizer, every access out of
// bounds. Shared memory is filled with NaNs before each block, so that a read of what nobody wrote
// shows in the result.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

#include <boost/context/fiber.hpp>
#include <boost/context/pooled_fixedsize_stack.hpp>

#include "tests/cuda_on_cpu/runtime.h"
#include "trainer/device/cuda/stream.h"

using std::isnan;
#define __global__
#define __device__
#define __launch_bounds__(...)

struct float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(8) ushort4 {
  std::uint16_t x, y, z, w;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};

struct dim3 {
  // NOLINTNEXTLINE(google-explicit-constructor): as CUDA's.
  dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
  unsigned x, y, z;
};

namespace cuda_on_cpu {

namespace context = boost::context;
constexpr int k_warp = 32;
constexpr std::size_t k_stack = 128 * 1024;

struct Warp { ///< What its lanes exchange.
  std::array<std::uint64_t, k_warp> slot{};
  unsigned waiting = 0; ///< Lanes that have come to the collective under way.
  unsigned mask = 0;
  unsigned generation = 0;
};

struct Copy {       ///< Under way.
  const void* from; ///< Null: zeros.
  void* to;
  std::size_t bytes;
};

struct Thread {
  dim3 index;
  int lane = 0;
  Warp* warp = nullptr;
  context::fiber fiber; ///< Where it goes on; empty while it runs and after its end.
  context::fiber scheduler;
  bool ended = false;
  unsigned barrier = 0;     ///< __syncthreads it has come to.
  std::vector<Copy> copies; ///< Into shared memory, that it has not waited for.
};

struct Block {
  dim3 index, size, grid;
  std::vector<Thread> threads;
  std::vector<Warp> warps;
  std::vector<std::uint64_t> shared; ///< As wide as any type that a kernel has there.
  unsigned barrier = 0;              ///< __syncthreads that all have passed.
  Thread* running = nullptr;
};

/// Of the block that runs, used again by the next one: kernels run one at a time.
inline context::pooled_fixedsize_stack& stacks() {
  static context::pooled_fixedsize_stack all{k_stack};
  return all;
}

inline Block*& block() {
  static thread_local Block* current = nullptr;
  return current;
}
inline Thread& self() { return *block()->running; }

inline void yield() {
  Thread& me = self();
  me.scheduler = std::move(me.scheduler).resume();
}

inline void sync_threads() {
  Thread& me = self();
  const unsigned mine = ++me.barrier;
  while (block()->barrier < mine) {
    yield();
  }
}

/// Waits until all lanes of `mask` are here, having put `value` into this lane's slot.
inline void meet(unsigned mask, std::uint64_t value) {
  Thread& me = self();
  Warp& warp = *me.warp;
  if ((mask >> me.lane & 1) == 0) {
    fail("a lane calls a warp collective whose mask does not name it");
  }
  if (warp.waiting == 0) {
    warp.mask = mask;
  } else if (warp.mask != mask) {
    fail("lanes of a warp are at collectives of unlike masks");
  }
  warp.slot[static_cast<std::size_t>(me.lane)] = value;
  warp.waiting |= 1U << me.lane;
  const unsigned generation = warp.generation;
  if (warp.waiting == mask) {
    warp.waiting = 0;
    ++warp.generation;
    return;
  }
  while (warp.generation == generation) {
    yield();
  }
}

/// The value of lane `from` as of this collective.
template <typename T>
T exchange(unsigned mask, T value, int from) {
  static_assert(sizeof(T) <= sizeof(std::uint64_t));
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  meet(mask, bits);
  if ((mask >> from & 1) == 0) {
    fail("a lane asks for the value of one that is not in the mask");
  }
  T result;
  std::memcpy(&result, &self().warp->slot[static_cast<std::size_t>(from)], sizeof result);
  meet(mask, bits); // Nobody writes the slots of the next one before all have read.
  return result;
}

/// What each lane of a whole warp brings.
inline std::array<std::uint64_t, k_warp> gather(std::uint64_t value) {
  constexpr unsigned k_all = 0xffffffffU;
  meet(k_all, value);
  const std::array<std::uint64_t, k_warp> all = self().warp->slot;
  meet(k_all, value); // As in exchange().
  return all;
}

template <typename Kernel>
void run_block(Block& b, const Kernel& kernel) {
  const std::size_t count = std::size_t{b.size.x} * b.size.y * b.size.z;
  b.threads.clear();
  b.threads.resize(count);
  b.warps.assign((count + k_warp - 1) / k_warp, {});
  b.barrier = 0;
  std::fill(b.shared.begin(), b.shared.end(), ~std::uint64_t{0});
  block() = &b;
  for (std::size_t i = 0; i < count; ++i) {
    Thread& thread = b.threads[i];
    thread.index =
        dim3(static_cast<unsigned>(i % b.size.x), static_cast<unsigned>(i / b.size.x % b.size.y),
             static_cast<unsigned>(i / b.size.x / b.size.y));
    thread.lane = static_cast<int>(i % k_warp);
    thread.warp = &b.warps[i / k_warp];
    thread.fiber = context::fiber(std::allocator_arg, stacks(),
                                  [&thread, &kernel](context::fiber&& scheduler) {
                                    thread.scheduler = std::move(scheduler);
                                    kernel();
                                    thread.ended = true;
                                    return std::move(thread.scheduler);
                                  });
  }
  for (std::size_t live = count; live > 0;) {
    bool moved = false;
    std::size_t at_barrier = 0;
    for (Thread& thread : b.threads) {
      if (thread.ended) {
        continue;
      }
      if (thread.barrier > b.barrier) { // Waits for the block.
        ++at_barrier;
        continue;
      }
      const unsigned barrier = thread.barrier;
      const unsigned generation = thread.warp->generation;
      const unsigned waiting = thread.warp->waiting;
      b.running = &thread;
      thread.fiber = std::move(thread.fiber).resume();
      moved = moved || thread.ended || thread.barrier != barrier ||
              thread.warp->generation != generation || thread.warp->waiting != waiting;
      live -= thread.ended ? 1 : 0;
      at_barrier += !thread.ended && thread.barrier > b.barrier ? 1 : 0;
    }
    if (live > 0 && at_barrier == live) {
      if (live != count) {
        fail("__syncthreads after some threads of the block have returned");
      }
      ++b.barrier;
      moved = true;
    }
    if (!moved) {
      fail("threads wait for ever: a barrier or warp collective in diverged code");
    }
  }
  block() = nullptr;
}

} // namespace cuda_on_cpu

#define threadIdx (cuda_on_cpu::self().index)
#define blockIdx (cuda_on_cpu::block()->index)
#define blockDim (cuda_on_cpu::block()->size)
#define gridDim (cuda_on_cpu::block()->grid)
#define DYNAMIC_SHARED(type, name)                                                                 \
  type* name = reinterpret_cast<type*>(cuda_on_cpu::block()->shared.data())

inline void __syncthreads() { cuda_on_cpu::sync_threads(); }
inline void __threadfence() {}

/// One more, and 0 behind `last`; returns what was there. Threads run in turns.
inline unsigned atomicInc(unsigned* value, unsigned last) {
  const unsigned before = *value;
  *value = before >= last ? 0 : before + 1;
  return before;
}

template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lanes) {
  return cuda_on_cpu::exchange(mask, value, cuda_on_cpu::self().lane ^ lanes);
}

template <typename T>
T __shfl_sync(unsigned mask, T value, int from) {
  return cuda_on_cpu::exchange(mask, value, from);
}

namespace trainer {

/// Puts it on the stream, as on a GPU: it runs when somebody waits for it.
template <typename... Parameters, typename... Arguments>
int launch(void (*kernel)(Parameters...), dim3 grid, dim3 size, std::size_t shared,
           const CudaStreamHandle* stream, Arguments... arguments) {
  constexpr unsigned k_most_threads = 1024;
  constexpr unsigned k_most_rows = 65535; // Of a grid's y and z.
  if (shared > stream->most_shared || size.x * size.y * size.z > k_most_threads ||
      grid.x * grid.y * grid.z == 0 || grid.y > k_most_rows || grid.z > k_most_rows) {
    return 1;
  }
  cuda_on_cpu::put(*stream, [=] {
    cuda_on_cpu::Block b;
    b.size = size;
    b.grid = grid;
    b.shared.resize((shared + sizeof(std::uint64_t) - 1) / sizeof(std::uint64_t));
    const std::size_t blocks = std::size_t{grid.x} * grid.y * grid.z;
    for (std::size_t i = 0; i < blocks; ++i) {
      b.index = dim3(static_cast<unsigned>(i % grid.x), static_cast<unsigned>(i / grid.x % grid.y),
                     static_cast<unsigned>(i / grid.x / grid.y));
      cuda_on_cpu::run_block(b, [&] { kernel(static_cast<Parameters>(arguments)...); });
    }
  });
  return 0;
}

} // namespace trainer
