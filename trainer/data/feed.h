// Brings rows of a source to the device, as a Batch.
//
// Where the device is the host, rows are written where they are used, and bytes become floats on
// the way there, while they are in the caches. Else they are put into pinned memory and copied from
// there, all fields at once, on a stream of their own, and bytes become floats there: one batch is
// put while the one before it is on its way and the device computes on the one before that. Images
// that the device keeps, all of them, are brought there once, and it gathers batches by itself.
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

/// Whether the device keeps all samples in its memory: images, as many as it has room for.
bool is_kept(const SampleSource& source, const Device& device);

class Feed {
 public:
  /// What it is given outlives it.
  Feed(Device& device, const SampleSource& source);

  /// Valid until the next batch.
  Batch read(const RowsToRead& rows);

  /// Keeps all samples, where is_kept(): from then on gather() makes batches, not read().
  void keep();
  bool keeps() const { return !kept_.empty(); }
  /// A batch of so many rows, which gatherings fill.
  Batch gather(std::size_t rows) { return make_batch(rows); }
  /// What makes rows [row, row + count): those samples that `order` has from number `first` on.
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
  std::vector<Buffer> values_;     ///< Of each field that is not used where it was sent to.
  std::vector<Buffer> kept_;       ///< All samples, field by field.
  std::unique_ptr<Stream> copies_; ///< From the first batch that is sent on.
  std::array<Staged, 2> staged_;
  std::size_t turn_ = 0;
};

} // namespace trainer
