// What a rank computes on: memory, streams of work, events, and kernels by name.
//
// Work on a stream runs in order, concurrently with the caller and with other streams. An event is
// a point in a stream: other streams wait for it without the host, which waits only to read a
// result. So a whole step is put on streams without the host waiting in between. The CPU runs what
// is put on its streams at once, in the caller's thread; its kernels are the oracle of every other
// device's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trainer/device/buffer.h"
#include "trainer/device/kernels.h"

namespace trainer {

struct CpuKernels;
class CudaDevice;

/// A point in a stream.
class Event {
 public:
  virtual ~Event() = default;
  virtual bool has_passed() const = 0;
  /// Blocks the caller until it has passed.
  virtual void wait() const = 0;
  /// Seconds from `earlier` to it, by the device's clock. Both are of record_timed() and of the
  /// same device, and have passed.
  virtual double seconds_since(const Event& earlier) const = 0;
};

class Stream {
 public:
  virtual ~Stream() = default;
  /// An event that passes when all work put here so far is done.
  virtual std::unique_ptr<Event> record() = 0;
  /// The same, which also keeps when it passed.
  virtual std::unique_ptr<Event> record_timed() = 0;
  /// Work put here from now on begins after `event`, of any stream of this device or of a peer.
  virtual void wait(const Event& event) = 0;
  /// Copies from memory of the host or the device to memory of either. If the host's memory is not
  /// pinned, the caller waits for the copy.
  virtual void copy(const void* from, void* to, std::size_t bytes) = 0;
  /// Sets memory to zeros.
  virtual void clear(void* memory, std::size_t bytes) = 0;
  /// Runs what `put` puts here: only kernels and clear(), the same ones for the same `key`. A GPU
  /// records them as a CUDA graph, and launches that the next time instead of calling `put`, until
  /// memory is allocated on it.
  virtual void replay(const std::vector<std::uint64_t>& /*key*/, const std::function<void()>& put) {
    put();
  }
};

/// What a device can do at most.
struct PeakFlops {
  double a_second = 0;          ///< 0: not known.
  const char* type = "float32"; ///< What is multiplied: float32, TF32, bf16, fp16 or FP8.
};

class Device {
 public:
  virtual ~Device() = default;

  /// "cpu, avx2 kernels, 1 thread"; if it was chosen automatically, with the reason.
  virtual std::string describe() const = 0;

  /// Its memory is the host's, and work on its streams is done on return.
  virtual bool is_host() const { return false; }

  /// Peak FLOP per second of dense products as it multiplies, multiply_in() and its precision, by
  /// its multiprocessors and their clock.
  virtual PeakFlops peak_flops() const { return {}; }
  /// Peak of its allocated memory in bytes; 0: not counted.
  virtual std::size_t most_allocated() const { return 0; }

  /// Bytes of its memory that a whole data set may take; 0: it keeps none.
  virtual std::size_t room_for_data() const { return 0; }

  /// Zeroed memory, to be freed before the device is destroyed. Throws Error if there is too
  /// little.
  virtual Buffer allocate(std::size_t count, DType dtype) = 0;
  /// Float32 that takes memory only where it is committed; on a device without pages, as
  /// allocate(). Whoever is about to write a part, or starts what will, commits it before; a part
  /// that is only read has been. Pages may be large: a part takes all pages that hold some of it.
  virtual Buffer allocate_paged(std::size_t count) { return allocate(count, DType::f32); }
  /// Of a page of such memory; 0: the device has none, and frees no part.
  virtual std::size_t page_bytes() const { return 0; }
  /// A part of such memory has memory from here on, until it is discarded: zeros, unless it had
  /// some before. A CPU gives each page its memory when that is first touched. Of any other memory
  /// it does nothing.
  virtual void commit(std::span<float> /*part*/) {}
  /// Frees a part of such memory: it is neither read nor written until it is committed again, with
  /// undefined values, but zeros where they never were anything else. All work on it is on
  /// stream(), or stream() waits for it.
  virtual void discard(std::span<float> /*part*/) {}
  /// Host memory that this device can copy from and to by itself.
  virtual Buffer allocate_pinned(std::size_t count, DType dtype) = 0;

  /// The stream of a step's work, and further streams.
  virtual Stream& stream() = 0;
  virtual std::unique_ptr<Stream> make_stream() = 0;

  virtual const Kernels& kernels() const = 0;
  /// From now on models round matrices to this type when they multiply them, if the device has such
  /// products.
  virtual void multiply_in(DType /*type*/) {}
  /// How products are computed from now on. False: the device has no such products, and computes
  /// with the highest precision.
  virtual bool set_matmul_precision(MatmulPrecision precision) {
    return precision == MatmulPrecision::highest;
  }
  /// Type of a transformer's activations and their gradients: float32, or bf16 on a GPU that
  /// multiplies in it.
  virtual DType activation_type() const { return DType::f32; }
  /// The CPU's own kernels, for models written for them; null on any other device.
  virtual const CpuKernels* cpu_kernels() const { return nullptr; }
  /// This GPU, for NCCL; null on any other device.
  virtual CudaDevice* cuda() { return nullptr; }
};

/// `choice`: auto, cpu, cuda, or one of several: cpu:1, gpu:1. `local_rank` picks this rank's GPU
/// of the host if the choice names none. `no_gpu`: why auto means the CPU here even if there is a
/// GPU; empty: it does not. Throws UsageError saying what is missing if there is no such GPU.
std::unique_ptr<Device> make_device(const std::string& choice, int local_rank = 0,
                                    const std::string& no_gpu = "");

} // namespace trainer
