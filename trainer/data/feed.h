// Brings images and labels, or text, to the device, as a Batch.
//
// Where the device is the host, an image's bytes become floats as they are put, while they are in
// the caches, and text is used where it is put. Else they are put into pinned memory and copied
// from there on a stream of their own, and images become floats there: one batch is put while the
// one before it is on its way and the device computes on the one before that. Samples that the
// device keeps, all of them, are brought there once, and it gathers batches by itself.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "trainer/data/permutation.h"
#include "trainer/data/token_source.h"
#include "trainer/device/device.h"
#include "trainer/nn/batch.h"

namespace trainer {

class Feed {
 public:
  /// `text`, where it is not null, is what rows are read from; it outlives this.
  Feed(Device& device, std::size_t features, const TokenSource* text = nullptr);

  /// Of a batch of so many rows, which put() fills.
  void begin(std::size_t rows);
  /// Rows [first, first + count).
  void put(std::size_t first, std::size_t count, const std::uint8_t* images,
           const std::uint8_t* labels);
  /// Row `row` of text, as TokenSource::read() has it.
  void put_text(std::size_t row, std::uint64_t sample, std::uint64_t seed, std::uint64_t position);
  /// Keeps so many samples on a device that is not the host: take() puts them into a batch.
  void keep(const std::uint8_t* images, const std::uint8_t* labels, std::size_t count);
  bool keeps() const { return kept_.size() > 0; }
  /// What makes rows [row, row + count): those samples that `order` has from number `first` on.
  Gathering gathering(std::size_t row, std::size_t count, const Permutation& order,
                      std::uint64_t first) const;
  void take(const Gathering& gathering) { kernels_.gather(stream_, gathering); }
  /// Valid until the next batch's begin().
  Batch finish();

 private:
  struct Staged { ///< A batch between the host and a device.
    Buffer pinned{0};
    Buffer bytes{0};
    std::unique_ptr<Event> copied;
    std::unique_ptr<Event> used;
  };
  /// Bytes of a batch: its images and labels, or its ids, lengths, masked and targets.
  std::size_t size(std::size_t rows) const;
  Staged& staged() { return staged_[turn_ % staged_.size()]; }
  /// What was put is on its way, for what is on the stream from here on; where to.
  void* send();
  /// The batch of text at `text`, the host's or the device's.
  TokenRow text_row(void* text, std::size_t row) const;

  Device& device_;
  const Kernels& kernels_; // Asked once: put() is called for each row.
  Stream& stream_;
  const bool is_host_;
  std::size_t features_;
  const TokenSource* text_;
  Buffer kept_{0, DType::u8}; ///< Images, and behind them labels, that the device keeps.
  std::size_t kept_count_ = 0;
  std::unique_ptr<Stream> copies_; ///< From the first batch that is sent on.
  std::array<Staged, 2> staged_;
  std::size_t turn_ = 0;
  std::size_t rows_ = 0;
  Buffer images_{0};
  Buffer labels_{0, DType::u8};          ///< Of a batch that is not sent.
  std::vector<std::int32_t> text_batch_; ///< The host's.
};

} // namespace trainer
