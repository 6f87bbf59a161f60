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

class TokenSource {
 public:
  virtual ~TokenSource() = default;
  virtual std::size_t count() const = 0;       ///< Rows.
  virtual std::size_t length() const = 0;      ///< T
  virtual std::size_t most_masked() const = 0; ///< K
  virtual std::size_t vocabulary() const = 0;  ///< Every id is below it.
  /// Of all that ranks have to have in common.
  virtual std::uint64_t digest() const = 0;
  /// Row number `sample`. What is masked in it is a pure function of (seed, position), so that it
  /// is the same on any rank and another in each epoch.
  virtual void read(std::uint64_t sample, std::uint64_t seed, std::uint64_t position,
                    const TokenRow& to) const = 0;
};

} // namespace trainer
