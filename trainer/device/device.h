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
#include <memory>
#include <string>

#include "trainer/device/buffer.h"
#include "trainer/device/kernels.h"

namespace trainer {

struct CpuKernels;

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
};

class Device {
 public:
  virtual ~Device() = default;

  /// "cpu, avx2 kernels, 1 thread", with why where it was chosen.
  virtual std::string describe() const = 0;

  /// Its memory is the host's, and what is put on its streams is done on return.
  virtual bool is_host() const { return false; }

  /// Zeroed. Throws Error where there is no such amount.
  virtual Buffer allocate(std::size_t count, DType dtype) = 0;
  /// The host's, which this device copies from and to by itself.
  virtual Buffer allocate_pinned(std::size_t count, DType dtype) = 0;

  /// The one that a step's work is put on, and others beside it.
  virtual Stream& stream() = 0;
  virtual std::unique_ptr<Stream> make_stream() = 0;

  virtual const Kernels& kernels() const = 0;
  /// The CPU's own, for models that are written for them; null on any other device.
  virtual const CpuKernels* cpu_kernels() const { return nullptr; }
};

/// `choice`: auto, cpu, cuda, or one of several: cpu:1, gpu:1. `local_rank`: of this host's ranks,
/// which have a GPU each where the choice names none. Throws UsageError for a GPU that there is
/// not, saying what is missing.
std::unique_ptr<Device> make_device(const std::string& choice, int local_rank = 0);

} // namespace trainer
