// Brings images and labels to the device, as a Batch.
//
// Where the device is the host, an image's bytes become floats as they are put, while they are in
// the caches. Else they are put into pinned memory, copied from there on a stream of their own, and
// become floats there: one batch is put while the one before it is on its way and the device
// computes on the one before that.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "trainer/device/device.h"
#include "trainer/nn/batch.h"

namespace trainer {

class Feed {
 public:
  Feed(Device& device, std::size_t features);

  /// Of a batch of so many rows, which put() fills.
  void begin(std::size_t rows);
  /// Rows [first, first + count).
  void put(std::size_t first, std::size_t count, const std::uint8_t* images,
           const std::uint8_t* labels);
  /// Valid until the next batch's begin().
  Batch finish();

 private:
  struct Staged { ///< A batch between the host and a device.
    Buffer pinned{0};
    Buffer bytes{0};
    std::unique_ptr<Event> copied;
    std::unique_ptr<Event> used;
  };
  std::size_t size(std::size_t rows) const { return rows * (features_ + 1); }

  Device& device_;
  const Kernels& kernels_; // Asked once: put() is called for each row.
  Stream& stream_;
  const bool is_host_;
  std::size_t features_;
  std::unique_ptr<Stream> copies_;
  std::array<Staged, 2> staged_;
  std::size_t turn_ = 0;
  std::size_t rows_ = 0;
  Buffer images_{0};
  Buffer labels_{0}; ///< The host's.
};

} // namespace trainer
