// Samples to learn from, of whatever kind: how many there are, which fields a row of a batch has of
// them, and how a row comes about. A feed (data/feed.h) makes room for those fields and brings them
// to the device, and knows of no kind.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "trainer/device/device.h"
#include "trainer/nn/batch.h"

namespace trainer {

/// A field of a source's samples.
struct FieldType {
  field::Name name;
  std::size_t width; ///< Values of a row.
  DType type;        ///< In a batch.
  /// In the source: the same, or of floats bytes, which become 255ths, or a smaller one of numbers.
  DType stored;

  bool becomes_float() const { return type == DType::f32 && stored != type; }
  std::size_t stored_bytes() const { return width * size_of(stored); } ///< Of a row.
  /// Of a row on its way to a device, which makes floats of bytes, and nothing else.
  std::size_t sent_bytes() const { return width * size_of(becomes_float() ? stored : type); }
};

/// What samples are, for a model to fit them and for people to read.
struct SampleKind {
  const char* rows;           ///< "images", "rows of text"
  const char* scored;         ///< What of them is: "images", "masked tokens"
  std::size_t height = 0;     ///< Of an image, in pixels.
  std::size_t width = 0;      ///< Likewise.
  std::size_t vocabulary = 0; ///< Of text: every id is below it.

  bool is_text() const { return vocabulary > 0; }
};

/// Rows that are to be read.
struct RowsToRead {
  std::span<const std::uint64_t> samples; ///< Their numbers.
  std::uint64_t position = 0;             ///< Of the first one in the stream of samples.
  std::uint64_t seed = 0;
  std::size_t reader = 0; ///< Of those that SampleSource::begin() was told.
  /// Called now and then while they are waited for; may throw.
  std::function<void()> while_waiting = [] {};
};

/// Where rows are written to: each of the source's fields, by its number.
class RowMemory {
 public:
  struct Field {
    std::uint8_t* memory = nullptr;
    std::size_t bytes = 0;  ///< Of a row there.
    std::size_t floats = 0; ///< Of a row that becomes so many; 0: it stays as it is.
  };

  RowMemory(const Kernels& kernels, Stream& stream) : kernels_(&kernels), stream_(&stream) {}
  void set(std::size_t number, const Field& field) { fields_[number] = field; }

  /// A row's values, as the source has them.
  void put(std::size_t number, std::size_t row, const void* from) const {
    const Field& field = fields_[number];
    std::uint8_t* const to = field.memory + row * field.bytes;
    if (field.floats > 0) {
      kernels_->bytes_to_floats(*stream_, field.floats, static_cast<const std::uint8_t*>(from),
                                reinterpret_cast<float*>(to));
    } else {
      std::memcpy(to, from, field.bytes);
    }
  }

  /// Where a row's values are to be written, of a field that stays as it is.
  template <typename T>
  T* at(std::size_t number, std::size_t row) const {
    return reinterpret_cast<T*>(fields_[number].memory + row * fields_[number].bytes);
  }

 private:
  const Kernels* kernels_; // Asked once: put() is called for each row.
  Stream* stream_;
  std::array<Field, field::k_names> fields_;
};

class SampleSource {
 public:
  virtual ~SampleSource() = default;

  std::size_t count() const { return count_; }
  const SampleKind& kind() const { return kind_; }
  const std::vector<FieldType>& fields() const { return fields_; }
  /// Values of a row; 0: it has no such field.
  std::size_t width(field::Name name) const {
    for (const FieldType& field : fields_) {
      if (field.name == name) {
        return field.width;
      }
    }
    return 0;
  }

  /// What is in a row is a pure function of its number, the seed and its position, so that it is
  /// the same on any rank. Throws DataError.
  virtual void read(const RowsToRead& rows, const RowMemory& to) const = 0;

  /// Samples come once, in the order of their numbers.
  virtual bool is_stream() const { return false; }
  /// `readers` will take `batch` samples together at a time, in lockstep. The first call counts.
  virtual void begin(std::size_t /*readers*/, std::size_t /*batch*/) const {}

  /// Of a source of images with labels in memory: (count, width) bytes of each field, which a
  /// device may keep. Null of any other.
  virtual const std::uint8_t* stored(std::size_t /*number*/) const { return nullptr; }
  /// Bytes of all samples in the source.
  std::size_t stored_bytes() const {
    std::size_t bytes = 0;
    for (const FieldType& field : fields_) {
      bytes += count_ * field.stored_bytes();
    }
    return bytes;
  }

  /// Of all that ranks have to have in common.
  virtual std::uint64_t digest() const = 0;

 protected:
  SampleSource(std::size_t count, const SampleKind& kind, std::vector<FieldType> fields)
      : count_(count), kind_(kind), fields_(std::move(fields)) {}

 private:
  std::size_t count_;
  SampleKind kind_;
  std::vector<FieldType> fields_;
};

} // namespace trainer
