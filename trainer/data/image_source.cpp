#include "trainer/data/image_source.h"

#include <utility>
#include <vector>

#include "trainer/data/spread_digest.h"
#include "trainer/data/xxh64.h"

namespace trainer {
namespace {

// Indexes of the fields.
constexpr std::size_t k_pixels = 0;
constexpr std::size_t k_label = 1;

void prefetch(const std::uint8_t* from, std::size_t size) {
  constexpr std::size_t k_line = 64;
  for (std::size_t i = 0; i < size; i += k_line) {
    __builtin_prefetch(from + i);
  }
}

SampleKind kind_of(std::size_t height, std::size_t width) {
  return {.rows = "images", .scored = "images", .height = height, .width = width};
}

std::vector<FieldType> fields_of(std::size_t height, std::size_t width, DType label_type) {
  return {{field::Name::images, height * width, DType::f32, DType::u8},
          {field::Name::labels, 1, DType::i32, label_type}};
}

class Images final : public SampleSource {
 public:
  explicit Images(ImageSet set)
      : SampleSource(set.count(), kind_of(set.height, set.width),
                     fields_of(set.height, set.width, set.label_type)),
        set_(std::move(set)), pixels_(set_.height * set_.width) {}

  /// Prefetches later rows while earlier ones are copied: rows lie anywhere in memory.
  void read(const RowsToRead& rows, const RowMemory& to) const override {
    constexpr std::size_t k_ahead = 8;
    const std::span<const std::uint64_t> samples = rows.samples;
    for (std::size_t row = 0; row < samples.size() + k_ahead; ++row) {
      if (row < samples.size()) {
        prefetch(image(samples[row]), pixels_);
      }
      if (row >= k_ahead) {
        const std::uint64_t sample = samples[row - k_ahead];
        to.put(k_pixels, row - k_ahead, image(sample));
        *to.at<std::int32_t>(k_label, row - k_ahead) =
            label_at(set_.labels.data(), set_.label_type, sample);
      }
    }
  }

  const std::uint8_t* stored(std::size_t number) const override {
    return number == k_pixels ? set_.images.data() : set_.labels.data();
  }

  std::uint64_t digest() const override {
    return xxh64(set_.labels, spread_digest(set_.images, set_.height * 31 + set_.width));
  }

 private:
  const std::uint8_t* image(std::uint64_t sample) const {
    return set_.images.data() + sample * pixels_;
  }

  ImageSet set_;
  std::size_t pixels_;
};

class StreamedImages final : public SampleSource {
 public:
  explicit StreamedImages(std::unique_ptr<SampleStream> stream)
      : SampleSource(stream->count(), kind_of(stream->height(), stream->width()),
                     fields_of(stream->height(), stream->width(), DType::i32)),
        stream_(std::move(stream)) {}

  void read(const RowsToRead& rows, const RowMemory& to) const override {
    stream_->read(rows.reader, rows.samples.front(), rows.samples.size(), rows.while_waiting,
                  [&](std::size_t row, const std::uint8_t* image, std::int32_t label) {
                    to.put(k_pixels, row, image);
                    *to.at<std::int32_t>(k_label, row) = label;
                  });
  }

  bool is_stream() const override { return true; }
  void begin(std::size_t readers, std::size_t batch) const override {
    stream_->begin(readers, batch);
  }
  std::uint64_t digest() const override {
    return 0;
  } // Each worker has its own stream: nothing to compare.

 private:
  std::unique_ptr<SampleStream> stream_;
};

} // namespace

std::shared_ptr<SampleSource> image_source(ImageSet set) {
  return std::make_shared<Images>(std::move(set));
}

std::shared_ptr<SampleSource> image_source(std::unique_ptr<SampleStream> stream) {
  return std::make_shared<StreamedImages>(std::move(stream));
}

} // namespace trainer
