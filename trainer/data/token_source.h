// Text as token ids: rows of T tokens, read by their number and masked by their position in the
// stream of samples.
#pragma once

#include <cstddef>
#include <cstdint>

#include "trainer/data/source.h"

namespace trainer {

/// Where to write a row. Letters as in nn/batch.h.
struct TokenRow {
  std::int32_t* ids;     ///< (T)
  std::int32_t* length;  ///< (1)
  std::int32_t* masked;  ///< (K)
  std::int32_t* targets; ///< (K)
};

/// Sets the targets of a row of `length` tokens: after each token the next one.
inline void set_next_targets(std::size_t length, std::size_t most, const TokenRow& row) {
  for (std::size_t i = 0; i < most; ++i) {
    const bool has_next = i + 1 < length;
    row.masked[i] = has_next ? static_cast<std::int32_t>(i) : -1;
    row.targets[i] = has_next ? row.ids[i + 1] : 0;
  }
}

class TokenSource : public SampleSource {
 public:
  void read(const RowsToRead& rows, const RowMemory& to) const final {
    for (std::size_t row = 0; row < rows.samples.size(); ++row) {
      read_row(rows.samples[row], rows.seed, rows.position + row,
               {to.at<std::int32_t>(0, row), to.at<std::int32_t>(1, row),
                to.at<std::int32_t>(2, row), to.at<std::int32_t>(3, row)});
    }
  }

 protected:
  /// `scored`: "masked tokens".
  TokenSource(std::size_t count, std::size_t length, std::size_t most_masked,
              std::size_t vocabulary, const char* scored)
      : SampleSource(count, {.rows = "rows of text", .scored = scored, .vocabulary = vocabulary},
                     {{field::Name::ids, length, DType::i32, DType::i32},
                      {field::Name::lengths, 1, DType::i32, DType::i32},
                      {field::Name::masked, most_masked, DType::i32, DType::i32},
                      {field::Name::targets, most_masked, DType::i32, DType::i32}}),
        length_(length), most_masked_(most_masked) {}

  std::size_t length() const { return length_; } ///< T
  std::size_t most_masked() const {
    return most_masked_;
  } ///< K, of which the model predicts the target

  virtual void read_row(std::uint64_t sample, std::uint64_t seed, std::uint64_t position,
                        const TokenRow& to) const = 0;

 private:
  std::size_t length_;
  std::size_t most_masked_;
};

} // namespace trainer
