#include "trainer/data/feed.h"

#include "trainer/clock.h"

namespace trainer {
namespace {

constexpr std::size_t k_aligned = 64; ///< Alignment in bytes of fields that are copied together.

std::size_t rounded_up(std::size_t bytes) {
  return (bytes + k_aligned - 1) / k_aligned * k_aligned;
}

} // namespace

bool is_kept(const SampleSource& source, const Device& device) {
  return source.stored(0) != nullptr && source.stored_bytes() <= device.room_for_data();
}

Feed::Feed(Device& device, const SampleSource& source)
    : device_(device), source_(source), kernels_(device.kernels()), stream_(device.stream()),
      is_host_(device.is_host()) {
  for (std::size_t i = 0; i < source.fields().size(); ++i) {
    values_.emplace_back(0);
  }
}

void Feed::keep() {
  for (std::size_t i = 0; i < source_.fields().size(); ++i) {
    const std::size_t bytes = source_.count() * source_.fields()[i].stored_bytes();
    kept_.push_back(device_.allocate(bytes, DType::u8));
    stream_.copy(source_.stored(i), kept_.back().memory(), bytes);
  }
}

Gathering Feed::gathering(std::size_t row, std::size_t count, const Permutation& order,
                          std::uint64_t first) const {
  const std::size_t pixels = source_.fields()[0].width;
  return {order,
          first,
          count,
          pixels,
          static_cast<const std::uint8_t*>(kept_[0].memory()),
          kept_[1].memory(),
          source_.fields()[1].stored,
          values_[0].data() + row * pixels,
          static_cast<std::int32_t*>(values_[1].memory()) + row};
}

Batch Feed::make_batch(std::size_t rows) {
  Batch batch{.rows = rows, .global_rows = rows};
  for (std::size_t i = 0; i < values_.size(); ++i) {
    const FieldType& field = source_.fields()[i];
    const bool is_used_as_sent = !is_host_ && !keeps() && !field.becomes_float();
    if (!is_used_as_sent && values_[i].size() < rows * field.width) {
      if (!is_host_) {
        stream_.record()->wait(); // Wait until nothing reads the buffer before it is freed.
      }
      values_[i] = device_.allocate(rows * field.width, field.type);
    }
    batch[field.name] = {values_[i].memory(), field.width, field.type};
  }
  return batch;
}

Batch Feed::read(const RowsToRead& rows) {
  if (!is_host_) {
    return send(rows);
  }
  const Batch batch = make_batch(rows.samples.size());
  RowMemory memory(kernels_, stream_);
  for (std::size_t i = 0; i < values_.size(); ++i) {
    const FieldType& field = source_.fields()[i];
    memory.set(i, {static_cast<std::uint8_t*>(values_[i].memory()),
                   field.width * size_of(field.type), field.becomes_float() ? field.width : 0});
  }
  source_.read(rows, memory);
  return batch;
}

Batch Feed::send(const RowsToRead& rows) {
  const std::size_t count = rows.samples.size();
  Batch batch = make_batch(count);
  std::array<std::size_t, field::k_names> places{};
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < values_.size(); ++i) {
    places[i] = bytes;
    bytes = rounded_up(bytes + count * source_.fields()[i].sent_bytes());
  }
  if (!copies_) {
    copies_ = device_.make_stream();
  }
  Staged& staged = staged_[++turn_ % staged_.size()];
  const double asked = now();
  if (staged.copied) {
    staged.copied->wait(); // This buffer was last used two batches ago.
  }
  seconds_waited_ = now() - asked;
  if (staged.pinned.size() < bytes) {
    staged.pinned = device_.allocate_pinned(bytes, DType::u8);
    staged.bytes = device_.allocate(bytes, DType::u8);
  }
  auto* const pinned = static_cast<std::uint8_t*>(staged.pinned.memory());
  auto* const sent = static_cast<std::uint8_t*>(staged.bytes.memory());
  RowMemory memory(kernels_, stream_);
  for (std::size_t i = 0; i < values_.size(); ++i) {
    memory.set(i, {pinned + places[i], source_.fields()[i].sent_bytes()});
  }
  source_.read(rows, memory);

  if (staged.used) {
    copies_->wait(*staged.used);
  }
  copies_->copy(pinned, sent, bytes);
  staged.copied = copies_->record();
  stream_.wait(*staged.copied);
  for (std::size_t i = 0; i < values_.size(); ++i) {
    const FieldType& field = source_.fields()[i];
    if (field.becomes_float()) {
      kernels_.bytes_to_floats(stream_, count * field.width, sent + places[i], values_[i].data());
    } else {
      batch[field.name].memory = sent + places[i];
    }
  }
  // Other fields are read in place, by work queued on the stream before the next batch.
  staged_[(turn_ + 1) % staged_.size()].used = stream_.record();
  return batch;
}

} // namespace trainer
