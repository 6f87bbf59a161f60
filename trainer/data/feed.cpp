#include "trainer/data/feed.h"

#include <cstring>

namespace trainer {

Feed::Feed(Device& device, std::size_t features, const TokenSource* text)
    : device_(device), kernels_(device.kernels()), stream_(device.stream()),
      is_host_(device.is_host()), features_(features), text_(text) {}

void Feed::keep(const std::uint8_t* images, const std::uint8_t* labels, std::size_t count) {
  kept_ = device_.allocate(count * (features_ + 1), DType::u8);
  kept_count_ = count;
  auto* const to = static_cast<std::uint8_t*>(kept_.memory());
  stream_.copy(images, to, count * features_);
  stream_.copy(labels, to + count * features_, count);
}

Gathering Feed::gathering(std::size_t row, std::size_t count, const Permutation& order,
                          std::uint64_t first) const {
  const auto* images = static_cast<const std::uint8_t*>(kept_.memory());
  return {order,
          first,
          count,
          features_,
          images,
          images + kept_count_ * features_,
          images_.data() + row * features_,
          static_cast<std::uint8_t*>(labels_.memory()) + row};
}

std::size_t Feed::size(std::size_t rows) const {
  return text_ == nullptr
             ? rows * (features_ + 1)
             : rows * (text_->length() + 1 + 2 * text_->most_masked()) * sizeof(std::int32_t);
}

void Feed::begin(std::size_t rows) {
  rows_ = rows;
  if (is_host_ && text_ != nullptr) {
    text_batch_.resize(size(rows) / sizeof(std::int32_t));
    return;
  }
  if (text_ == nullptr && images_.size() < rows * features_) {
    if (!is_host_) {
      stream_.record()->wait(); // Nothing reads what is given back.
    }
    images_ = device_.allocate(rows * features_, DType::f32);
  }
  if (is_host_ || keeps()) {
    if (labels_.size() < rows) {
      labels_ = device_.allocate(rows, DType::u8);
    }
    return;
  }
  if (!copies_) {
    copies_ = device_.make_stream();
  }
  ++turn_;
  if (staged().copied) {
    staged().copied->wait(); // Two batches ago.
  }
  if (staged().pinned.size() < size(rows)) {
    staged().pinned = device_.allocate_pinned(size(rows), DType::u8);
    staged().bytes = device_.allocate(size(rows), DType::u8);
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
  auto* pinned = static_cast<std::uint8_t*>(staged().pinned.memory());
  std::memcpy(pinned + first * features_, images, count * features_);
  std::memcpy(pinned + rows_ * features_ + first, labels, count);
}

void Feed::put_text(std::size_t row, std::uint64_t sample, std::uint64_t seed,
                    std::uint64_t position) {
  text_->read(sample, seed, position,
              text_row(is_host_ ? text_batch_.data() : staged().pinned.memory(), row));
}

TokenRow Feed::text_row(void* text, std::size_t row) const {
  auto* const ids = static_cast<std::int32_t*>(text); // (rows, T), and so on: as Tokens has them
  auto* const lengths = ids + rows_ * text_->length();
  auto* const masked = lengths + rows_;
  auto* const targets = masked + rows_ * text_->most_masked();
  return {ids + row * text_->length(), lengths + row, masked + row * text_->most_masked(),
          targets + row * text_->most_masked()};
}

void* Feed::send() {
  if (staged().used) {
    copies_->wait(*staged().used);
  }
  copies_->copy(staged().pinned.memory(), staged().bytes.memory(), size(rows_));
  staged().copied = copies_->record();
  stream_.wait(*staged().copied);
  return staged().bytes.memory();
}

Batch Feed::finish() {
  Batch batch{.rows = rows_, .global_rows = rows_};
  const bool is_sent = !is_host_ && !keeps();
  void* const sent = is_sent ? send() : nullptr;
  if (text_ != nullptr) {
    const TokenRow first = text_row(is_host_ ? text_batch_.data() : sent, 0);
    const std::size_t most_masked = rows_ * text_->most_masked();
    batch = batch.with(field::ids, {first.ids, rows_ * text_->length()})
                .with(field::lengths, {first.length, rows_})
                .with(field::masked, {first.masked, most_masked})
                .with(field::targets, {first.targets, most_masked});
  } else {
    const auto* labels = static_cast<const std::uint8_t*>(labels_.memory());
    if (is_sent) {
      const auto* bytes = static_cast<const std::uint8_t*>(sent);
      kernels_.bytes_to_floats(stream_, rows_ * features_, bytes, images_.data());
      labels = bytes + rows_ * features_;
    }
    batch = batch.with(field::images, {images_.data(), rows_ * features_})
                .with(field::labels, {labels, rows_});
  }
  if (is_sent) {
    // Its labels or its text are read where they are: by what is on the stream before the next
    // batch is.
    staged_[(turn_ + 1) % staged_.size()].used = stream_.record();
  }
  return batch;
}

} // namespace trainer
