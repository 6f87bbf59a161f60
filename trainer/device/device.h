// What a rank computes on: memory, streams of work, events, and kernels by name.
//
// What is put on a stream is carried out in order, beside the caller and beside other streams. An
// event is a point in a stream: other streams wait for it without the host, which waits only where
// it has to look at a result. So a step is put on streams from end to end, and nobody stands still.
// The CPU carries out what is put on its streams at once, in the caller's thread; its kernels are
// the oracle of every other device's.
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
  /// The host's own waiting.
  virtual void wait() const = 0;
};

class Stream {
 public:
  virtual ~Stream() = default;
  /// Once all has been carried out that was put here so far.
  virtual std::unique_ptr<Event> record() = 0;
  /// What is put here from now on begins after `event`, of any stream of this device.
  virtual void wait(const Event& event) = 0;
  /// From memory of the host or the device to memory of either. Where one is the host's and not
  /// pinned, the caller waits.
  virtual void copy(const void* from, void* to, std::size_t bytes) = 0;
  /// To zeros.
  virtual void clear(void* memory, std::size_t bytes) = 0;
  /// What `put` puts here: kernels alone, and the same ones wherever `key` is the same. A device
  /// that can remembers it, and then puts all of it here at once, without `put`, until something is
  /// allocated on it.
  virtual void replay(const std::vector<std::uint64_t>& /*key*/, const std::function<void()>& put) {
    put();
  }
};

class Device {
 public:
  virtual ~Device() = default;

  /// "cpu, avx2 kernels, 1 thread", with why where it was chosen.
  virtual std::string describe() const = 0;

  /// Its memory is the host's, and what is put on its streams is done on return.
  virtual bool is_host() const { return false; }

  /// Of float32 a second, at most, by its multiprocessors and their clock; 0: not known.
  virtual double peak_flops() const { return 0; }
  /// Bytes of its memory that were given out at once, at most; 0: nobody counts.
  virtual std::size_t most_allocated() const { return 0; }

  /// Bytes of its memory that a data set may lie in, all of it; 0: none does.
  virtual std::size_t room_for_data() const { return 0; }

  /// Zeroed, and given back before the device goes. Throws Error where there is no such amount.
  virtual Buffer allocate(std::size_t count, DType dtype) = 0;
  /// Zeroed float32, of which discard() gives parts back to the machine; of a device that cannot,
  /// as allocate().
  virtual Buffer allocate_paged(std::size_t count) { return allocate(count, DType::f32); }
  /// What lies in this part of such memory is not needed: until it is written it holds anything.
  virtual void discard(std::span<float> /*part*/) {}
  /// Whole pages of such memory, to which nothing has been written yet, lie in a file in `folder`
  /// from now on: one without a name, which ends with the memory. Throws UsageError, naming the
  /// folder, where there is no room, and on a device that cannot.
  virtual void move_to_file(std::span<float> part, const std::string& folder) = 0;
  /// A part of memory that was moved is about to be written: its pages come at once, and no others
  /// with them, as a read would bring those around it.
  virtual void fetch(std::span<float> /*part*/) {}
  /// A part of memory that was moved, or several: its pages take no memory until they are used
  /// next, and what lies in them stays.
  virtual void release(std::span<float> /*part*/) {}
  /// The host's, which this device copies from and to by itself.
  virtual Buffer allocate_pinned(std::size_t count, DType dtype) = 0;

  /// The one that a step's work is put on, and others beside it.
  virtual Stream& stream() = 0;
  virtual std::unique_ptr<Stream> make_stream() = 0;

  virtual const Kernels& kernels() const = 0;
  /// From now on models round the values of matrices to this as they multiply them, where this
  /// device has such products.
  virtual void multiply_in(DType /*type*/) {}
  /// What transformers keep activations in, and the gradients of these: float32, or bf16 on a GPU
  /// that multiplies in it.
  virtual DType activation_type() const { return DType::f32; }
  /// The CPU's own, for models that are written for them; null on any other device.
  virtual const CpuKernels* cpu_kernels() const { return nullptr; }
  /// This GPU, for NCCL; null on any other device.
  virtual CudaDevice* cuda() { return nullptr; }
};

/// `choice`: auto, cpu, cuda, or one of several: cpu:1, gpu:1. `local_rank`: of this host's ranks,
/// which have a GPU each where the choice names none. `no_gpu`: why auto is the CPU here even where
/// there is a GPU; empty: it is not. Throws UsageError for a GPU that there is not, saying what is
/// missing.
std::unique_ptr<Device> make_device(const std::string& choice, int local_rank = 0,
                                    const std::string& no_gpu = "");

} // namespace trainer
