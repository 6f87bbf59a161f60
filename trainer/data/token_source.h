// Text to learn from, as the numbers of its tokens: rows of T, each read by its number and masked
// by its position in the stream of samples.
#pragma once

#include <cstddef>
#include <cstdint>

namespace trainer {

/// Where a row is read to. Letters as in nn/batch.h.
struct TokenRow {
  std::int32_t* ids;     ///< (T)
  std::int32_t* length;  ///< (1)
  std::int32_t* masked;  ///< (K)
  std::int32_t* targets; ///< (K)
};

/// Has a row's tokens, of which there are `length`, each told by those in front of it.
inline void tell_next(std::size_t length, std::size_t most, const TokenRow& row) {
  for (std::size_t i = 0; i < most; ++i) {
    const bool is_told = i + 1 < length;
    row.masked[i] = is_told ? static_cast<std::int32_t>(i) : -1;
    row.targets[i] = is_told ? row.ids[i + 1] : 0;
  }
}

class TokenSource {
 public:
  virtual ~TokenSource() = default;
  virtual std::size_t count() const = 0;       ///< Rows.
  virtual std::size_t length() const = 0;      ///< T
  virtual std::size_t most_masked() const = 0; ///< K, of which the model tells the target
  virtual const char* told() const = 0;        ///< "masked tokens"
  virtual std::size_t vocabulary() const = 0;  ///< Every id is below it.
  /// Of all that ranks have to have in common.
  virtual std::uint64_t digest() const = 0;
  /// Row number `sample`. What is masked in it is a pure function of (seed, position), so that it
  /// is the same on any rank and another in each epoch.
  virtual void read(std::uint64_t sample, std::uint64_t seed, std::uint64_t position,
                    const TokenRow& to) const = 0;
};

} // namespace trainer
