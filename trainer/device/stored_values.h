// Float32 values that stay from one step to the next in memory, of a device or pinned, or in a
// file.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "trainer/device/cpu/plain_layers.h"
#include "trainer/device/device.h"
#include "trainer/device/typed_pointer.h"

namespace trainer {

/// Where a part of each of an optimizer's rows is on the device: of up to two moments and the
/// parameters.
using RowPointers = std::array<float*, 3>;

/// Values in a file (optim/state_files.h, optim/arena_file.h). Throws Error naming its folder where
/// it fails.
class ValueFile {
 public:
  using Ticket = std::size_t;

  virtual ~ValueFile() = default;
  /// Starts to read values from `at` on to the host's memory, behind all that was updated before.
  /// `to` is left alone until the wait.
  virtual Ticket start_read(std::size_t at, std::span<float> to) = 0;
  virtual void wait(Ticket ticket) = 0;
  /// The same at once, while nothing is being updated; also from other threads.
  virtual void read(std::size_t at, std::span<float> to) const = 0;
  virtual void write(std::size_t at, std::span<const float> from) = 0;
};

struct StoredValues {
  std::span<float> memory = {}; ///< Where there is no file.
  ValueFile* file = nullptr;
  TypedPointer halves = {}; ///< The same in bf16 or fp16, in the host's memory; or null.

  /// Copies values from `at` on to the host's memory, or from there; those of paged memory are
  /// committed. `device`: whose memory it is.
  void read(Device& device, std::size_t at, std::span<float> to) const {
    file != nullptr ? file->read(at, to)
                    : device.stream().copy(memory.data() + at, to.data(), to.size_bytes());
  }
  void write(Device& device, std::size_t at, std::span<const float> from) const {
    if (file != nullptr) {
      file->write(at, from);
      return;
    }
    device.commit(memory.subspan(at, from.size()));
    device.stream().copy(from.data(), memory.data() + at, from.size_bytes());
    if (halves) {
      plain_narrow(device.stream(), from.size(), halves.type, from.data(), (halves + at).memory);
    }
  }
};

} // namespace trainer
