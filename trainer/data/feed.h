// Brings rows of a source to the device, as a Batch.
//
// On the CPU, rows are written where they are used, and bytes are converted to floats on the way,
// while they are in the caches. For a GPU, rows are written to pinned memory and copied from there,
// all fields at once, on a separate stream; the GPU converts bytes to floats. One batch is written
// while the one before it is copied and the device computes on the one before that. If the device
// has room for all images, they are copied there once, and it gathers batches by itself.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "trainer/data/permutation.h"
#include "trainer/data/source.h"
#include "trainer/device/device.h"
#include "trainer/nn/batch.h"

namespace trainer {

/// Whether the device keeps all samples in its memory: images, if it has room for all of them.
bool is_kept(const SampleSource& source, const Device& device);

class Feed {
 public:
  /// Device and source outlive the feed.
  Feed(Device& device, const SampleSource& source);

  /// Valid until the next batch.
  Batch read(const RowsToRead& rows);

  /// Seconds for which the last read() waited for the device to free a buffer: the device had work.
  double seconds_waited() const { return seconds_waited_; }

  /// Copies all samples to the device, if is_kept(); from then on use gather() instead of read().
  void keep();
  bool keeps() const { return !kept_.empty(); }
  /// A batch of `rows` rows, to be filled by gatherings.
  Batch gather(std::size_t rows) { return make_batch(rows); }
  /// Fills rows [row, row + count) with the samples of `order` from number `first` on.
  Gathering gathering(std::size_t row, std::size_t count, const Permutation& order,
                      std::uint64_t first) const;
  void take(const Gathering& gathering) { kernels_.gather(stream_, gathering); }

 private:
  struct Staged { ///< A batch between the host and a device.
    Buffer pinned{0};
    Buffer bytes{0};
    std::unique_ptr<Event> copied;
    std::unique_ptr<Event> used;
  };
  Batch make_batch(std::size_t rows);
  Batch send(const RowsToRead& rows);

  Device& device_;
  const SampleSource& source_;
  const Kernels& kernels_;
  Stream& stream_;
  const bool is_host_;
  std::vector<Buffer> values_;     ///< Of each field that is converted on the device.
  std::vector<Buffer> kept_;       ///< All samples, field by field.
  std::unique_ptr<Stream> copies_; ///< Null before the first copied batch.
  std::array<Staged, 2> staged_;
  std::size_t turn_ = 0;
  double seconds_waited_ = 0;
};

} // namespace trainer
