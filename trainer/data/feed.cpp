#include "trainer/data/feed.h"

#include <cstring>

namespace trainer {

Feed::Feed(Device& device, std::size_t features)
    : device_(device), kernels_(device.kernels()), stream_(device.stream()),
      is_host_(device.is_host()), features_(features),
      copies_(device.is_host() ? nullptr : device.make_stream()) {}

void Feed::begin(std::size_t rows) {
  rows_ = rows;
  if (!is_host_ && images_.size() < rows * features_) {
    stream_.record()->wait(); // Nothing reads what is given back.
  }
  if (images_.size() < rows * features_) {
    images_ = device_.allocate(rows * features_, DType::f32);
  }
  if (is_host_) {
    if (labels_.size() < rows) {
      labels_ = device_.allocate(rows, DType::u8);
    }
    return;
  }
  Staged& staged = staged_[++turn_ % staged_.size()];
  if (staged.copied) {
    staged.copied->wait(); // Two batches ago.
  }
  if (staged.pinned.size() < size(rows)) {
    staged.pinned = device_.allocate_pinned(size(rows), DType::u8);
    staged.bytes = device_.allocate(size(rows), DType::u8);
  }
}

void Feed::put(std::size_t first, std::size_t count, const std::uint8_t* images,
               const std::uint8_t* labels) {
  if (is_host_) {
    kernels_.bytes_to_floats(stream_, count * features_, images,
                             images_.data() + first * features_);
    std::memcpy(static_cast<std::uint8_t*>(labels_.memory()) + first, labels, count);
    return;
  }
  auto* pinned = static_cast<std::uint8_t*>(staged_[turn_ % staged_.size()].pinned.memory());
  std::memcpy(pinned + first * features_, images, count * features_);
  std::memcpy(pinned + rows_ * features_ + first, labels, count);
}

Batch Feed::finish() {
  const auto* labels = static_cast<const std::uint8_t*>(labels_.memory());
  if (!is_host_) {
    Staged& staged = staged_[turn_ % staged_.size()];
    if (staged.used) {
      copies_->wait(*staged.used);
    }
    copies_->copy(staged.pinned.memory(), staged.bytes.memory(), size(rows_));
    staged.copied = copies_->record();
    stream_.wait(*staged.copied);
    const auto* bytes = static_cast<const std::uint8_t*>(staged.bytes.memory());
    kernels_.bytes_to_floats(stream_, rows_ * features_, bytes, images_.data());
    // Its labels are read where they are: by what is on the stream before the next batch is.
    staged_[(turn_ + 1) % staged_.size()].used = stream_.record();
    labels = bytes + rows_ * features_;
  }
  return {.rows = rows_,
          .images = {images_.data(), rows_ * features_},
          .labels = {labels, rows_},
          .global_rows = rows_};
}

} // namespace trainer
